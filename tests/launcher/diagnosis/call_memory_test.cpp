// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/call_memory.hpp"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <new>
#include <random>

#include "launcher/stacks/stack_json.hpp"
#include "rendezvous/call_records.hpp"

using namespace ddp::launcher;
using namespace ddp::rendezvous;

namespace {

// The memory as a worker has it.
class Worker {
 public:
  explicit Worker(const CallMemory& memory)
      : place_(static_cast<char*>(
            mmap(nullptr, kCallRecordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor(), 0))) {
    REQUIRE(place_ != MAP_FAILED);
    header().version = kCallRecordsVersion;
    std::strcpy(header().operations[0].data(), "all_reduce");
    std::strcpy(header().operations[1].data(), "recv");
    header().messages = 1U << 1;
  }
  ~Worker() { munmap(place_, kCallRecordsBytes); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  char* bytes() { return place_; }
  CallRecordsHeader& header() { return *reinterpret_cast<CallRecordsHeader*>(place_); }
  GroupRecords& add_group(const char* name, std::size_t capacity) {
    auto* const group = reinterpret_cast<GroupRecords*>(place_ + sizeof(CallRecordsHeader) + header().used);
    group->capacity = capacity;
    group->size = 4;
    std::strcpy(group->name.data(), name);
    group->in_use = 1;
    header().used += GroupRecords::bytes_for(capacity);
    return *group;
  }

 private:
  char* place_;
};

void call(GroupRecords& group, std::uint32_t kind, std::uint64_t sequence, CallState state, int peer = 0) {
  const std::uint64_t number = group.last + 1;
  CallRecord& record = group.records()[number % group.capacity];
  record.kind = kind;
  record.sequence = sequence;
  record.state = state;
  record.root = peer;
  record.bytes = 4000;
  record.number = number;
  group.last = number;
}

}  // namespace

TEST_CASE("call memory: what a worker notes is read, the newest collective and all that has not ended",
          "[launcher][unit]") {
  const CallMemory memory;
  CHECK(memory.read().empty());  // it has written nothing
  Worker worker(memory);
  GroupRecords& world = worker.add_group("world", 4);
  for (std::uint64_t i = 1; i <= 9; ++i) call(world, 0, i, CallState::Ended);
  call(world, 0, 10, CallState::Started);
  call(world, 1, 1, CallState::Issued, 3);
  worker.add_group("gone", 2).in_use = 0;
  call(worker.add_group("pair", 2), 0, 1, CallState::Failed);
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

TEST_CASE("call memory: nothing that a worker writes there reads beyond it, or takes long", "[launcher][unit]") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const CallMemory memory;
    Worker worker(memory);
    for (int i = 0; i < 3; ++i) call(worker.add_group("world", 1 + random() % 5), 0, 1, CallState::Started);
    for (int i = 0; i < 40; ++i) {
      const std::size_t at = 8 + random() % (worker.header().used % 4096 + sizeof(CallRecordsHeader));
      worker.bytes()[at] = static_cast<char>(random());
    }
    const auto groups = memory.read();
    CHECK(groups.size() <= 256);
    CHECK(calls_json(groups).size() < 100'000);
  }
  const CallMemory memory;
  Worker worker(memory);
  GroupRecords& group = worker.add_group("world", 3);
  group.last = UINT64_MAX;
  worker.header().used = UINT64_MAX;
  CHECK(memory.read().size() == 1);
  worker.header().version = 99;
  CHECK(memory.read().empty());
}
