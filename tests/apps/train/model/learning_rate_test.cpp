// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/model/learning_rate.hpp"

#include <catch2/catch.hpp>

namespace train {
namespace {

TEST_CASE("learning_rate: rises to the peak, then falls along a cosine to a tenth", "[train][unit]") {
  CHECK(learning_rate(1, 110, 10, 1.0) == Approx(0.1));
  CHECK(learning_rate(5, 110, 10, 1.0) == Approx(0.5));
  CHECK(learning_rate(10, 110, 10, 1.0) == Approx(1.0));
  CHECK(learning_rate(60, 110, 10, 1.0) == Approx(0.55));
  CHECK(learning_rate(110, 110, 10, 1.0) == Approx(0.1));
}

TEST_CASE("learning_rate: no warm-up, and a warm-up longer than the training, are both fine", "[train][unit]") {
  CHECK(learning_rate(1, 100, 0, 1.0) == Approx(1.0).epsilon(1e-3));
  CHECK(learning_rate(100, 100, 0, 1.0) == Approx(0.1));
  CHECK(learning_rate(100, 100, 200, 1.0) == Approx(0.5));
  CHECK(learning_rate(100, 100, 100, 1.0) == Approx(1.0));
}

}  // namespace
}  // namespace train
