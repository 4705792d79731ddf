// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/scale.hpp"

#include <catch2/catch.hpp>

#include "ddp/ddp.h"

using ddp::runtime::averaging_factor;
using ddp::runtime::scale;

TEST_CASE("scale: an average multiplies by 1/N, which is not the same as dividing", "[runtime][unit]") {
  const float x = 5.0F;
  float y = 0;
  scale(&y, &x, 1, DDP_FLOAT32, averaging_factor(3, DDP_FLOAT32));
  CHECK(y == x * (1.0F / 3.0F));
  double wide = 0.7;
  scale(&wide, &wide, 1, DDP_FLOAT64, averaging_factor(7, DDP_FLOAT64));
  CHECK(wide == 0.7 * (1.0 / 7.0));
}
