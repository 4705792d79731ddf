// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/fingerprint.hpp"

#include <catch2/catch.hpp>

using ddp::runtime::describe;
using ddp::runtime::describe_calls;
using ddp::runtime::fingerprint;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;

TEST_CASE("fingerprint: operations that must not meet have different ones", "[runtime][unit]") {
  const Operation sum = {.kind = OperationKind::AllReduce, .count = 10, .dtype = DDP_FLOAT32};
  Operation max = sum;
  max.reduce_op = ddp::collectives::ReduceOp::Max;
  Operation longer = sum;
  longer.count = 11;
  Operation wider = sum;
  wider.dtype = DDP_FLOAT64;
  const Operation from_3 = {.kind = OperationKind::Broadcast, .count = 10, .root = 3};
  const Operation to_3 = {.kind = OperationKind::Gather, .count = 10, .root = 3};
  const Operation exchange = {.kind = OperationKind::AllToAll, .dtype = DDP_INT16};
  for (const Operation& other : {max, longer, wider, from_3, to_3, exchange, Operation()})
    CHECK(fingerprint(sum) != fingerprint(other));
  CHECK(describe(fingerprint(max)) == "all_reduce of 10 float32 (max)");
  CHECK(describe(fingerprint(from_3)) == "broadcast of 10 uint8 from rank 3");
  CHECK(describe(fingerprint(to_3)) == "gather of 10 uint8 to rank 3");
  CHECK(describe(fingerprint(exchange)) == "all_to_all of int16");
  CHECK(describe(fingerprint(Operation())) == "barrier");
  const auto barrier = fingerprint(Operation());
  CHECK(describe_calls({barrier, fingerprint(max), barrier}) ==
        "ranks 0, 2 called barrier; rank 1 called all_reduce of 10 float32 (max)");
  std::vector<ddp::runtime::Fingerprint> many(12, barrier);
  many[0] = fingerprint(max);
  CHECK(describe_calls(many) ==
        "rank 0 called all_reduce of 10 float32 (max); ranks 1, 2, 3, 4, 5, 6, 7, "
        "8 and 3 more called barrier");
}
