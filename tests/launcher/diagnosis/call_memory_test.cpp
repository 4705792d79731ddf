// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/call_memory.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <ctime>
#include <random>

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "tests/launcher/output/trace/worker_memory.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::OperationState;
using ddp::testing::WorkerMemory;

namespace {

void run(WorkerMemory& worker, std::size_t group, std::uint64_t number) {
  worker.start(group, number, 100);
  worker.end(group, number, 200);
}

}  // namespace

TEST_CASE("call memory: what a worker notes is read, the newest collective and all that has not ended",
          "[launcher][unit]") {
  const CallMemory memory;
  CHECK(memory.read().empty());  // it has written nothing
  WorkerMemory worker(memory.descriptor());
  worker.header().records = 4;
  worker.join(0, "world");
  for (std::uint64_t i = 1; i <= 9; ++i) run(worker, 0, i);
  worker.start(0, 10, 100);
  worker.start(0, 11, 200);
  worker.record(0, 11).kind = 1;
  worker.record(0, 11).root = 3;
  worker.join(1, "gone");
  worker.header().groups[1].is_gone = 1;
  worker.join(2, "pair");
  worker.start(2, 1, 300);
  worker.record(2, 1).state = OperationState::Failed;
  worker.join(3, "moves in");
  ++worker.header().groups[3].generation;
  const auto groups = memory.read();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].group == "world");
  CHECK(groups[0].size == 4);
  CHECK(groups[0].collectives == 10);
  CHECK(groups[0].newest == "all_reduce");
  REQUIRE(groups[0].under_way.size() == 2);
  CHECK(groups[0].under_way[0].sequence == 10);
  CHECK(groups[0].under_way[0].peer == CallUnderWay::kNoPeer);
  CHECK(groups[0].under_way[1].operation == "recv");
  CHECK(groups[0].under_way[1].peer == 3);
  CHECK(groups[1].under_way.empty());
  CHECK(calls_from_json(calls_json(groups)) == groups);
}

TEST_CASE("call memory: the share of its time that a worker is in collectives, of several at once counted once",
          "[launcher][unit]") {
  const CallMemory memory;
  CHECK(memory.summary().now_in.empty());
  CHECK_FALSE(memory.summary().in_collectives_percent);
  WorkerMemory worker(memory.descriptor());
  worker.join(0, "world");
  worker.join(1, "pair");
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t second = 1'000'000'000, began = now.tv_sec * second - 1000 * second;
  worker.start(0, 1, began);
  worker.end(0, 1, began + 300 * second);
  worker.start(1, 1, began + 100 * second);
  worker.end(1, 1, began + 400 * second);
  CHECK(memory.summary().now_in.empty());
  CHECK(memory.summary().in_collectives_percent.value_or(-1) >= 39);  // a bit more than 1000 s may have passed
  worker.start(0, 2, began + 900 * second);
  CHECK(memory.summary().now_in == "all_reduce #2 of group world");
  CHECK(memory.summary().milliseconds >= 100'000);
  CHECK(memory.summary().in_collectives_percent.value_or(-1) >= 49);
}

TEST_CASE("call memory: the last operations of each group, as a flight recorder tells them", "[launcher][unit]") {
  const CallMemory memory;
  CHECK(memory.flight_record(3).empty());
  WorkerMemory worker(memory.descriptor());
  worker.join(0, "world");
  for (std::uint64_t i = 1; i <= 300; ++i) run(worker, 0, i);
  worker.start(0, 301, 5000);
  const std::string json = memory.flight_record(3);
  CHECK(
      json.starts_with(R"({"rank": 3, "why": "the worker runs", "groups": [{"name": "world", "rank": 0, "size": 4,)"));
  CHECK(json.find(R"("sequence": 46,)") != std::string::npos);
  CHECK(json.find(R"("sequence": 45,)") == std::string::npos);
  CHECK(json.find(R"("state": "started", "issued_us": 5, "started_us": 5, "ended_us": null}]}]})") !=
        std::string::npos);
}

TEST_CASE("call memory: nothing that a worker writes there is read beyond it, or takes long", "[launcher][unit]") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    const CallMemory memory;
    WorkerMemory worker(memory.descriptor());
    for (std::size_t group = 0; group < 3; ++group) {
      worker.join(group, "world");
      worker.start(group, 1, 100);
    }
    auto* const bytes = reinterpret_cast<unsigned char*>(&worker.header());
    for (int i = 0; i < 40; ++i) {
      const bool is_header = i % 2 == 0;
      const std::size_t at =
          is_header ? 8 + random() % (sizeof worker.header() - 8) : ddp::rendezvous::kRingsAt + random() % 4096;
      bytes[at] = static_cast<unsigned char>(random());
    }
    CHECK(memory.summary().now_in.size() < 200);
    CHECK(memory.flight_record(0).size() < 10'000'000);
    const auto groups = memory.read();
    CHECK(groups.size() <= ddp::rendezvous::kRecordedGroups);
    CHECK(calls_json(groups).size() < 100'000);
  }
  const CallMemory memory;
  WorkerMemory worker(memory.descriptor());
  worker.join(0, "world");
  worker.header().records = UINT64_MAX;
  CHECK(memory.read().size() == 1);
  worker.header().version = 99;
  CHECK(memory.read().empty());
}
