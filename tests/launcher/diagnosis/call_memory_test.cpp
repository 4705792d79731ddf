// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/call_memory.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>

#include "launcher/stacks/stack_json.hpp"
#include "tests/launcher/trace/worker_memory.hpp"

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
