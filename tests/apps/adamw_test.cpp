// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <cmath>

#include "apps/train/adamw.hpp"

namespace train {
namespace {

void check_near(const Floats& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-6));
}

Parameters matrix_and_bias() {
  Parameters parameters;
  parameters.push_back({"matrix", {2, 2}, 0, {1.0F, -2.0F, 0.5F, 3.0F}, Floats(4), Floats(4), Floats(4)});
  parameters.push_back({"bias", {2}, 1, {0.25F, -0.75F}, Floats(2), Floats(2), Floats(2)});
  return parameters;
}

TEST_CASE("adamw: takes the steps of torch.optim.AdamW", "[train][unit]") {
  // torch 2.15: lr 0.01, betas (0.9, 0.99), eps 1e-8, weight_decay 0.1 for the matrix and 0 for the bias.
  Parameters p = matrix_and_bias();

  p[0].gradient = {0.1F, -0.2F, 0.3F, 0.0F};
  p[1].gradient = {1.0F, -0.5F};
  adamw_step(p, 1, 0.01F, 0.1F);
  check_near(p[0].value, {0.98900002F, -1.98800004F, 0.48950002F, 2.99699998F});
  check_near(p[1].value, {0.23999999F, -0.74000001F});

  p[0].gradient = {-0.4F, 0.2F, 0.3F, 1e-3F};
  p[1].gradient = {0.25F, 0.5F};
  adamw_step(p, 2, 0.01F, 0.1F);
  check_near(p[0].value, {0.99359494F, -1.98653841F, 0.47901052F, 2.98657846F});
  check_near(p[1].value, {0.23167738F, -0.74052632F});

  p[0].gradient = {0.05F, 2.0F, -0.3F, 0.02F};
  p[1].gradient = {-1.0F, 0.125F};
  adamw_step(p, 3, 0.01F, 0.1F);
  check_near(p[0].value, {0.99612612F, -1.99090624F, 0.47591159F, 2.97695470F});
  check_near(p[1].value, {0.23152162F, -0.74204290F});
}

TEST_CASE("clip_gradients: brings the norm over all parameters down to the limit", "[train][unit]") {
  Parameters p = matrix_and_bias();
  p[0].gradient = {3, 0, 0, 0};
  p[1].gradient = {0, -4};
  CHECK(clip_gradients(p, 10) == Approx(5));
  CHECK(p[0].gradient[0] == 3);
  CHECK(clip_gradients(p, 0) == Approx(5));
  CHECK(p[0].gradient[0] == 3);
  CHECK(clip_gradients(p, 1) == Approx(5));
  CHECK(p[0].gradient[0] == Approx(0.6));
  CHECK(p[1].gradient[1] == Approx(-0.8));
}

TEST_CASE("clip_gradients: a gradient that is not a number shows in the norm", "[train][unit]") {
  Parameters p = matrix_and_bias();
  p[1].gradient = {0, std::nanf("")};
  CHECK(std::isnan(clip_gradients(p, 1)));
}

TEST_CASE("learning_rate: rises to the peak, then falls along a cosine to a tenth", "[train][unit]") {
  CHECK(learning_rate(1, 110, 10, 1.0F) == Approx(0.1));
  CHECK(learning_rate(5, 110, 10, 1.0F) == Approx(0.5));
  CHECK(learning_rate(10, 110, 10, 1.0F) == Approx(1.0));
  CHECK(learning_rate(60, 110, 10, 1.0F) == Approx(0.55));
  CHECK(learning_rate(110, 110, 10, 1.0F) == Approx(0.1));
}

TEST_CASE("learning_rate: no warm-up, and a warm-up longer than the training, are both fine", "[train][unit]") {
  CHECK(learning_rate(1, 100, 0, 1.0F) == Approx(1.0).epsilon(1e-3));
  CHECK(learning_rate(100, 100, 0, 1.0F) == Approx(0.1));
  CHECK(learning_rate(100, 100, 200, 1.0F) == Approx(0.5));
  CHECK(learning_rate(100, 100, 100, 1.0F) == Approx(1.0));
}

}  // namespace
}  // namespace train
