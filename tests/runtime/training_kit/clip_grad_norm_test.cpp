// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/training/clip_grad_norm.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/runtime/training_kit/golden_numbers.hpp"

using ddp::test::golden_optimizers;
using ddp::test::numbers;
using nlohmann::json;

namespace {

template <typename T>
void check_clip(const json& golden) {
  std::vector<std::vector<T>> gradients = {numbers<T>(1, 5), numbers<T>(2, 1), numbers<T>(3, 64)};
  std::vector<ddp::Parameter> parameters;
  for (std::vector<T>& g : gradients) parameters.emplace_back("part", static_cast<T*>(nullptr), g.data(), g.size());
  const double norm =
      ddp::clip_grad_norm(parameters, golden["max_norm"], std::stod(golden["norm_type"].get<std::string>()));
  CHECK(norm == Approx(golden["norm"].get<double>()).epsilon(1e-6));
  std::size_t i = 0;
  for (const std::vector<T>& part : gradients) {
    for (const T g : part) {
      CHECK(static_cast<double>(g) == Approx(golden["gradients"][i++].get<double>()).epsilon(1e-6).margin(1e-9));
    }
  }
  CHECK(i == golden["gradients"].size());
}

}  // namespace

TEST_CASE("clip_grad_norm: does what torch's does, for every kind of norm", "[training][unit]") {
  const json clips = golden_optimizers()["clips"];
  REQUIRE(clips.size() == 16);
  for (const json& golden : clips) {
    INFO(golden["dtype"] << ", norm " << golden["norm_type"] << ", at most " << golden["max_norm"]);
    if (golden["dtype"] == "float64") {
      check_clip<double>(golden);
    } else {
      check_clip<float>(golden);
    }
  }
}

TEST_CASE("clip_grad_norm: gradients below the limit keep their bits, and one that is missing is left out",
          "[training][unit]") {
  std::vector<float> gradient = {3, 4};
  std::vector<ddp::Parameter> parameters = {{"w", static_cast<float*>(nullptr), gradient.data(), 2},
                                            {"frozen", static_cast<float*>(nullptr), static_cast<float*>(nullptr), 9}};
  CHECK(ddp::clip_grad_norm(parameters, 6) == 5);
  CHECK(gradient == std::vector<float>{3, 4});
  CHECK(ddp::clip_grad_norm(parameters, 1) == 5);
  CHECK(gradient[0] == Approx(0.6));
  CHECK(ddp::clip_grad_norm({}, 1) == 0);
}

TEST_CASE("clip_grad_norm: a gradient that is not a number shows in the norm, or is an error that changes nothing",
          "[training][unit]") {
  std::vector<float> gradient = {3, std::nanf(""), 4};
  const std::vector<ddp::Parameter> parameters = {{"w", static_cast<float*>(nullptr), gradient.data(), 3}};
  for (const double norm_type : {1.0, 2.0, ddp::kInfinityNorm}) {
    CHECK_THROWS_WITH(ddp::clip_grad_norm(parameters, 1, norm_type, true),
                      Catch::Matchers::Contains("the gradients' norm is nan"));
    CHECK(gradient[0] == 3);
  }
  CHECK(std::isnan(ddp::clip_grad_norm(parameters, 1)));
  CHECK(std::isnan(gradient[0]));  // as in torch
  gradient = {3, std::numeric_limits<float>::infinity(), 4};
  CHECK(std::isinf(ddp::clip_grad_norm(parameters, 1)));
  CHECK(gradient[0] == 0);
}

TEST_CASE("clip_grad_norm: takes 16 bits as well", "[training][unit]") {
  std::vector<std::uint16_t> gradient = {0x4200, 0x4400};  // 3 and 4 as halves
  ddp::Parameter p;
  p.grad = gradient.data();
  p.count = 2;
  p.dtype = ddp::DType::Float16;
  CHECK(ddp::clip_grad_norm({p}, 2.5) == 5);
  CHECK(gradient == std::vector<std::uint16_t>{0x3e00, 0x4000});  // 1.5 and 2
}
