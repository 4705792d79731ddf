// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/reduce_kernels.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/element_types.hpp"
#include "ddp/ddp.h"

using namespace ddp::collectives;

TEST_CASE("reduce kernels: there is a kernel for every type and reduction that is not composed",
          "[collectives][unit]") {
  for (std::int32_t dtype = DDP_FLOAT32; dtype <= DDP_BFLOAT16; ++dtype) {
    const bool is_integer = !is_floating_point(dtype);
    const bool is_half = is_16_bit_float(dtype);
    CAPTURE(dtype);
    CHECK(element_size(dtype) > 0);
    for (const std::int32_t op : {DDP_SUM, DDP_PRODUCT, DDP_MIN, DDP_MAX}) {
      CHECK((reduce_function(dtype, op) != nullptr) != is_half);
    }
    for (const std::int32_t op : {DDP_BAND, DDP_BOR, DDP_BXOR}) {
      CHECK((reduce_function(dtype, op) != nullptr) == is_integer);
    }
    for (const std::int32_t op : {DDP_AVG, DDP_PREMUL_SUM}) CHECK(reduce_function(dtype, op) == nullptr);
  }
  CHECK(reduce_function(DDP_BFLOAT16 + 1, DDP_SUM) == nullptr);
  CHECK(element_size(DDP_BFLOAT16 + 1) == 0);
}

TEMPLATE_TEST_CASE("reduce kernels: a NaN of any rank is the minimum and the maximum", "[collectives][unit]", float,
                   double) {
  const auto nan = std::numeric_limits<TestType>::quiet_NaN();
  const auto infinity = std::numeric_limits<TestType>::infinity();
  const std::int32_t dtype = sizeof(TestType) == 4 ? DDP_FLOAT32 : DDP_FLOAT64;
  const std::vector<TestType> left = {nan, 1, nan, 2, infinity, nan}, right = {1, nan, nan, 3, nan, -infinity};
  std::vector<TestType> least(6), most(6);
  reduce_function(dtype, DDP_MIN)(least.data(), left.data(), right.data(), 6);
  reduce_function(dtype, DDP_MAX)(most.data(), left.data(), right.data(), 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(std::isnan(least[i]) == (i != 3));
    CHECK(std::isnan(most[i]) == (i != 3));
  }
  CHECK(least[3] == 2);
  CHECK(most[3] == 3);
}

TEST_CASE("reduce kernels: integers wrap, narrow ones too", "[collectives][unit]") {
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
