// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/model/optimizer.hpp"

#include <catch2/catch.hpp>
#include <span>

namespace train {
namespace {

void check_near(std::span<const float> found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("optimizer: takes the steps of torch.optim.AdamW, in which matrices decay and biases do not",
          "[train][unit]") {
  // torch 2.15: lr 0.01, betas (0.9, 0.99), eps 1e-8, weight_decay 0.1 for the matrix and 0 for the bias.
  Parameters p;
  p.push_back({"matrix", {2, 2}, 0, {1.0F, -2.0F, 0.5F, 3.0F}, Floats(4)});
  p.push_back({"bias", {2}, 1, {0.25F, -0.75F}, Floats(2)});
  ddp::AdamW optimizer = make_optimizer(p, 0.1);
  optimizer.set_lr(0.01);

  p[0].gradient = {0.1F, -0.2F, 0.3F, 0.0F};
  p[1].gradient = {1.0F, -0.5F};
  optimizer.step();
  check_near(p[0].value, {0.98900002F, -1.98800004F, 0.48950002F, 2.99699998F});
  check_near(p[1].value, {0.23999999F, -0.74000001F});

  p[0].gradient = {-0.4F, 0.2F, 0.3F, 1e-3F};
  p[1].gradient = {0.25F, 0.5F};
  optimizer.step();
  check_near(p[0].value, {0.99359494F, -1.98653841F, 0.47901052F, 2.98657846F});
  check_near(p[1].value, {0.23167738F, -0.74052632F});
}

}  // namespace
}  // namespace train
