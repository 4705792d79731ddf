// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/describe_operation.hpp"

#include <catch2/catch.hpp>

using ddp::runtime::describe;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;

TEST_CASE("operation: an error names the operation, its number and its size", "[runtime][unit]") {
  const Operation all_reduce = {.kind = OperationKind::AllReduce, .count = 8'250'000, .dtype = DDP_FLOAT32};
  CHECK(describe(all_reduce, 412) == "all_reduce #412 (33.0 MB)");
  CHECK(describe(Operation(), 3) == "barrier #3");
}
