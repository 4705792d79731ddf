// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/operation.hpp"

#include <catch2/catch.hpp>

#include "collectives/gloo/reduce_kernels.hpp"
#include "runtime/base/error_file.hpp"

using ddp::collectives::reduce_function;
using ddp::runtime::describe;
using ddp::runtime::fingerprint;
using ddp::runtime::human_bytes;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;

TEST_CASE("operation: sizes are told as people say them", "[runtime][unit]") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(1000) == "1.0 kB");
  CHECK(human_bytes(33'000'000) == "33.0 MB");
  CHECK(human_bytes(999'960'000) == "1.0 GB");
  CHECK(human_bytes(5'000'000'000'000'000) == "5000.0 TB");
}

TEST_CASE("operation: an error names the operation, its number and its size", "[runtime][unit]") {
  const Operation all_reduce = {.kind = OperationKind::AllReduce, .count = 8'250'000, .dtype = DDP_FLOAT32};
  CHECK(describe(all_reduce, 412) == "all_reduce #412 (33.0 MB)");
  CHECK(describe(Operation(), 3) == "barrier #3");
}

TEST_CASE("operation: a fingerprint tells apart what must not meet", "[runtime][unit]") {
  const Operation sum = {.kind = OperationKind::AllReduce, .count = 10, .dtype = DDP_FLOAT32};
  Operation max = sum;
  max.reduce_op = DDP_MAX;
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
  CHECK(ddp::runtime::who_called_what({barrier, fingerprint(max), barrier}) ==
        "ranks 0, 2 called barrier; rank 1 called all_reduce of 10 float32 (max)");
  std::vector<ddp::runtime::Fingerprint> many(12, barrier);
  many[0] = fingerprint(max);
  CHECK(ddp::runtime::who_called_what(many) ==
        "rank 0 called all_reduce of 10 float32 (max); ranks 1, 2, 3, 4, 5, 6, 7, "
        "8 and 3 more called barrier");
}

TEST_CASE("operation: scaling multiplies by 1/N, which is not the same as dividing", "[runtime][unit]") {
  const float x = 5.0F;
  float y = 0;
  ddp::runtime::scale(&y, &x, 1, DDP_FLOAT32, ddp::runtime::share_of(3, DDP_FLOAT32));
  CHECK(y == x * (1.0F / 3.0F));
  double wide = 0.7;
  ddp::runtime::scale(&wide, &wide, 1, DDP_FLOAT64, ddp::runtime::share_of(7, DDP_FLOAT64));
  CHECK(wide == 0.7 * (1.0 / 7.0));
}

TEST_CASE("operation: there is a kernel for every type and reduction that is not composed", "[runtime][unit]") {
  for (std::int32_t dtype = DDP_FLOAT32; dtype <= DDP_BFLOAT16; ++dtype) {
    const bool is_integer = !ddp::collectives::is_floating_point(dtype);
    const bool is_16_bit_float = ddp::collectives::is_16_bit_float(dtype);
    CAPTURE(dtype);
    CHECK(ddp::runtime::dtype_size(dtype) > 0);
    for (const std::int32_t op : {DDP_SUM, DDP_PRODUCT, DDP_MIN, DDP_MAX}) {
      CHECK((reduce_function(dtype, op) != nullptr) != is_16_bit_float);
    }
    for (const std::int32_t op : {DDP_BAND, DDP_BOR, DDP_BXOR}) {
      CHECK((reduce_function(dtype, op) != nullptr) == is_integer);
    }
    for (const std::int32_t op : {DDP_AVG, DDP_PREMUL_SUM}) CHECK(reduce_function(dtype, op) == nullptr);
  }
  CHECK(reduce_function(DDP_BFLOAT16 + 1, DDP_SUM) == nullptr);
  CHECK(ddp::runtime::dtype_size(DDP_BFLOAT16 + 1) == 0);
}

TEST_CASE("operation: integers wrap, narrow ones too", "[runtime][unit]") {
  const std::int32_t large[] = {INT32_MAX, INT32_MAX};
  const std::int32_t two[] = {1, 2};
  std::int32_t result[2] = {};
  reduce_function(DDP_INT32, DDP_SUM)(result, large, two, 1);
  CHECK(result[0] == INT32_MIN);
  reduce_function(DDP_INT32, DDP_PRODUCT)(result, large, two, 2);
  CHECK(result[1] == -2);
  const std::uint16_t wide = 0xffff;  // its square does not fit into an int
  std::uint16_t square = 0;
  reduce_function(DDP_UINT16, DDP_PRODUCT)(&square, &wide, &wide, 1);
  CHECK(square == 1);
}

TEST_CASE("error file: is what torchrun writes and reads, whatever bytes the message has", "[runtime][unit]") {
  CHECK(
      ddp::runtime::error_file_text("bad \"loss\"\n", "bad \"loss\"\n", 1700000000) ==
      R"({"message":{"extraInfo":{"py_callstack":"bad \"loss\"\n","timestamp":"1700000000"},"message":"bad \"loss\"\n"}})");
  CHECK(ddp::runtime::error_file_text("\xff", "", 0).find("\xef\xbf\xbd") != std::string::npos);
}
