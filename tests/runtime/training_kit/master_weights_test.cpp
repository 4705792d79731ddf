// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/training/master_weights.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "ddp/training/optimizer.hpp"

namespace {

ddp::Parameter parameter(std::vector<std::uint16_t>& value, std::vector<std::uint16_t>& grad, ddp::DType dtype) {
  ddp::Parameter p;
  p.value = value.data();
  p.grad = grad.data();
  p.count = value.size();
  p.dtype = dtype;
  p.name = "weight";
  return p;
}

}  // namespace

TEST_CASE("master_weights: steps too small for 16 bits add up", "[training][unit]") {
  std::vector<std::uint16_t> value = {0x3f80, 0x3f80, 0x3f80}, grad = {0x3f80, 0, 0x3f80};  // bfloat16: ones
  float wide = 1, wide_grad = 1;
  ddp::MasterWeights master({parameter(value, grad, ddp::DType::BFloat16), {"wide", &wide, &wide_grad, 1}});
  ddp::SGDOptions options;
  options.lr = 0x1p-10;  // below half of the last place of 1 as bfloat16
  ddp::SGD optimizer(master.parameters(), options);
  for (int step = 1; step <= 8; ++step) {
    CHECK(master.read_gradients());
    optimizer.step();
    master.write_values();
    if (step == 1) CHECK(value[0] == 0x3f80);
  }
  CHECK(value == std::vector<std::uint16_t>{0x3f7e, 0x3f80, 0x3f7e});  // 1 - 2^-7
  CHECK(wide == 1 - 0x1p-7F);                                          // stepped in place
}

TEST_CASE("master_weights: gradients come up times a factor, also those of 32 bits, and show if one is not finite",
          "[training][unit]") {
  std::vector<std::uint16_t> value = {0, 0}, grad = {0x3c00, 0x4000};  // halves: 1 and 2
  float wide = 0, wide_grad = 8;
  ddp::MasterWeights master({parameter(value, grad, ddp::DType::Float16), {"wide", &wide, &wide_grad, 1}});
  CHECK(master.read_gradients(0.25));
  CHECK(static_cast<float*>(master.parameters()[0].grad)[1] == 0.5F);
  CHECK(wide_grad == 2);
  CHECK(grad[1] == 0x4000);
  grad[0] = 0xfc00;  // minus infinity
  CHECK_FALSE(master.read_gradients());
}

TEST_CASE("master_weights: take over values that the model got in another way", "[training][unit]") {
  std::vector<std::uint16_t> value = {0x3c00}, grad = {0};
  ddp::MasterWeights master({parameter(value, grad, ddp::DType::Float16)});
  CHECK(static_cast<float*>(master.parameters()[0].value)[0] == 1);
  value[0] = 0x4000;
  master.read_values();
  CHECK(static_cast<float*>(master.parameters()[0].value)[0] == 2);
  ddp::MasterWeights moved = std::move(master);
  CHECK(static_cast<float*>(moved.parameters()[0].value)[0] == 2);
  ddp::Parameter none = moved.parameters()[0];
  none.grad = nullptr;
  CHECK_THROWS_WITH(ddp::MasterWeights({none}), Catch::Matchers::Contains("MasterWeights: weight has no gradient"));
}

TEST_CASE("master_weights: copy from and to the place where the model's memory has moved", "[training][unit]") {
  std::vector<std::uint16_t> value = {0x3c00}, grad = {0x3c00}, new_value = {0}, new_grad = {0x4000};  // halves
  float wide = 1, wide_grad = 1, new_wide = 3, new_wide_grad = 5;
  ddp::MasterWeights master({parameter(value, grad, ddp::DType::Float16), {"wide", &wide, &wide_grad, 1}});
  master.set_value(0, new_value.data());
  master.set_gradient(0, new_grad.data());
  master.set_value(1, &new_wide);
  master.set_gradient(1, &new_wide_grad);
  CHECK(master.read_gradients());
  CHECK(static_cast<float*>(master.parameters()[0].grad)[0] == 2);
  master.write_values();
  CHECK(new_value[0] == 0x3c00);
  CHECK(master.parameters()[1].value == &new_wide);
  CHECK(master.parameters()[1].grad == &new_wide_grad);
}
