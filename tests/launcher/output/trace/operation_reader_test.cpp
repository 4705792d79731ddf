// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/operation_reader.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/diagnosis/call_memory.hpp"
#include "tests/launcher/output/trace/worker_memory.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::kMostRecords;
using ddp::testing::WorkerMemory;

namespace {

struct Traced {
  CallMemory memory;
  OperationReader reader{memory.descriptor()};
  WorkerMemory worker{memory.descriptor()};
  std::vector<TracedOperation> got;
  std::string names;

  std::vector<std::uint64_t> read() { return take(false); }
  std::vector<std::uint64_t> read_last() { return take(true); }
  std::vector<std::uint64_t> take(bool is_last) {
    std::vector<std::uint64_t> sequences;
    got.clear();
    const auto each = [&](const TracedOperation& operation) {
      got.push_back(operation);
      names = *operation.group + "/" + *operation.operation + "/" + *operation.dtype;
      sequences.push_back(operation.sequence);
    };
    is_last ? reader.read_last(each) : reader.read(each);
    return sequences;
  }
};

using Sequences = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("operation reader: gives each operation once, when it is over", "[launcher][unit]") {
  Traced traced;
  CHECK(traced.read().empty());
  traced.worker.join(0, "world");
  traced.worker.start(0, 1, 100);
  traced.worker.start(0, 2, 150);
  CHECK(traced.read().empty());
  traced.worker.end(0, 2, 300);
  CHECK(traced.read() == Sequences{2});
  CHECK(traced.names == "world/all_reduce/float32");
  traced.worker.end(0, 1, 400);
  traced.worker.start(0, 3, 500);
  traced.worker.end(0, 3, 600);
  CHECK(traced.read() == Sequences{1, 3});
  CHECK(traced.got.at(0).ended_ns == 400);
  CHECK(traced.read().empty());
  CHECK(traced.reader.missed() == 0);
}

TEST_CASE("operation reader: of a dead worker it gives what was under way, too", "[launcher][unit]") {
  Traced traced;
  traced.worker.join(0, "world");
  traced.worker.start(0, 1, 100);
  CHECK(traced.read().empty());
  traced.worker.start(0, 2, 200);
  CHECK(traced.read_last() == Sequences{1, 2});
  CHECK(traced.got.at(0).ended_ns == 0);
}

TEST_CASE("operation reader: counts what was overwritten before it was read, and goes on", "[launcher][unit]") {
  Traced traced;
  traced.worker.join(0, "world");
  for (std::uint64_t number = 1; number <= kMostRecords + 10; ++number) {
    traced.worker.start(0, number, 1);
    traced.worker.end(0, number, 2);
  }
  const Sequences got = traced.read();
  REQUIRE(got.size() == kMostRecords);
  CHECK(got.front() == 11);
  CHECK(got.back() == kMostRecords + 10);
  CHECK(traced.reader.missed() == 10);
}

TEST_CASE("operation reader: the records of a group that takes the place of another are read from its first one",
          "[launcher][unit]") {
  Traced traced;
  traced.worker.join(0, "first");
  traced.worker.start(0, 1, 100);
  traced.worker.end(0, 1, 200);
  CHECK(traced.read() == Sequences{1});
  traced.worker.header().groups[0].generation += 1;  // while it moves in
  traced.worker.record(0, 1).number = 0;
  CHECK(traced.read().empty());
  traced.worker.header().groups[0].generation -= 1;
  traced.worker.join(0, "second");
  traced.worker.start(0, 1, 300);
  traced.worker.end(0, 1, 400);
  CHECK(traced.read() == Sequences{1});
  CHECK(traced.names == "second/all_reduce/float32");
}

TEST_CASE("operation reader: nonsense of a worker is cut or counted, and read to an end", "[launcher][unit]") {
  Traced traced;
  traced.worker.join(0, std::string(64, 'x'));  // without a NUL at the end
  traced.worker.start(0, 1, -5);
  traced.worker.record(0, 1).kind = -7;
  traced.worker.record(0, 1).dtype = 1'000'000;
  traced.worker.end(0, 1, INT64_MIN);
  CHECK(traced.read() == Sequences{1});
  CHECK(traced.names == std::string(64, 'x') + "/unknown/unknown");
  for (std::uint64_t slot = 0; slot < kMostRecords; ++slot) traced.worker.record(0, slot).number = UINT64_MAX - slot;
  traced.read();
  traced.read_last();
  traced.worker.header().groups[63].generation = 3;
  traced.read_last();
}
