// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/training/grad_scaler.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ddp/training/optimizer.hpp"
#include "tests/runtime/training_kit/golden_numbers.hpp"

using Catch::Matchers::Contains;
using ddp::GradScaler;
using ddp::GradScalerOptions;
using nlohmann::json;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct OneWeight {
  float value = 0;
  float grad = 0;
  std::vector<ddp::Parameter> list = {{"w", &value, &grad, 1}};
  int steps = 0;
  const std::vector<ddp::Parameter>& parameters() { return list; }
  void step() { ++steps; }
};

void iterate(GradScaler& scaler, OneWeight& weight, float grad) {
  weight.grad = grad;
  scaler.step(weight);
  scaler.update();
}

}  // namespace

TEST_CASE("grad_scaler: grows, falls and leaves out steps as torch's does", "[training][unit]") {
  const json golden = ddp::test::golden_optimizers()["scalers"];
  REQUIRE(golden.size() == 3);
  for (const json& g : golden) {
    INFO("options " << g["options"]);
    GradScalerOptions options;
    options.init_scale = static_cast<float>(g["options"].value("init_scale", 65536.0));
    options.growth_factor = g["options"].value("growth_factor", options.growth_factor);
    options.backoff_factor = g["options"].value("backoff_factor", options.backoff_factor);
    options.growth_interval = g["options"].value("growth_interval", options.growth_interval);
    GradScaler scaler(options);
    std::vector<float> values(2), gradients(2);
    ddp::SGDOptions sgd;
    sgd.lr = 1;
    ddp::SGD optimizer(std::vector<ddp::Parameter>{{"w", values.data(), gradients.data(), 2}}, sgd);
    REQUIRE(g["after"].size() == g["overflows"].size());
    for (std::size_t i = 0; i < g["after"].size(); ++i) {
      const bool overflow = g["overflows"][i] != 0;
      gradients = {1, overflow ? kInfinity : 2};
      CHECK(scaler.step(optimizer) == !overflow);
      scaler.update();
      CHECK(scaler.get_scale() == g["after"][i][0].get<float>());
      CHECK(scaler.state_dict().growth_tracker == g["after"][i][1]);
      CHECK(values[0] == g["after"][i][2].get<float>());
    }
  }
}

TEST_CASE("grad_scaler: multiplies the loss, and divides gradients once, so that they can be clipped",
          "[training][unit]") {
  GradScaler scaler;
  OneWeight weight;
  weight.grad = scaler.scale(3.0F);
  CHECK(weight.grad == 3 * 65536);
  scaler.unscale(weight);
  CHECK(weight.grad == 3);
  weight.grad = 1;  // clipped
  CHECK(scaler.step(weight));
  CHECK(weight.grad == 1);
  CHECK(weight.steps == 1);
}

TEST_CASE("grad_scaler: calls out of order are errors that say so, until update begins a new turn",
          "[training][unit]") {
  GradScaler scaler;
  OneWeight weight, other;
  CHECK_THROWS_WITH(scaler.update(), Contains("update() was called before anything was unscaled"));
  scaler.unscale(weight);
  CHECK_THROWS_WITH(scaler.unscale(weight), Contains("unscale() was called twice"));
  scaler.step(weight);
  CHECK_THROWS_WITH(scaler.step(weight), Contains("step() was called twice"));
  CHECK_THROWS_WITH(scaler.unscale(weight), Contains("unscale() was called after step()"));
  scaler.step(other);  // each optimizer has its own turn
  scaler.update();
  scaler.step(weight);
  CHECK(weight.steps == 2);
  CHECK_THROWS_WITH(GradScaler([] {
                      GradScalerOptions o;
                      o.growth_factor = 1;
                      return o;
                    }()),
                    Contains("growth_factor must be above 1"));
}

TEST_CASE("grad_scaler: an overflow of one optimizer leaves out its own step only, and lowers the scale of all",
          "[training][unit]") {
  GradScaler scaler;
  OneWeight good, bad;
  bad.grad = std::numeric_limits<float>::quiet_NaN();
  CHECK(scaler.step(good));
  CHECK_FALSE(scaler.step(bad));
  scaler.update();
  CHECK(good.steps == 1);
  CHECK(bad.steps == 0);
  CHECK(scaler.get_scale() == 32768);
}

TEST_CASE("grad_scaler: apex's limits hold on both sides", "[training][unit]") {
  GradScalerOptions options = GradScalerOptions::apex();
  options.growth_interval = 1;
  options.min_scale = 4;
  GradScaler scaler(options);
  OneWeight weight;
  for (int i = 0; i < 20; ++i) iterate(scaler, weight, 1);
  CHECK(scaler.get_scale() == 16777216);
  for (int i = 0; i < 40; ++i) iterate(scaler, weight, kInfinity);
  CHECK(scaler.get_scale() == 4);
}

TEST_CASE("grad_scaler: goes on where a state was taken", "[training][unit]") {
  GradScalerOptions options;
  options.growth_interval = 3;
  GradScaler first(options), second;
  OneWeight weight;
  iterate(first, weight, kInfinity);
  iterate(first, weight, 1);
  iterate(first, weight, 1);
  second.load_state_dict(first.state_dict());
  CHECK(second.get_scale() == 32768);
  iterate(second, weight, 1);
  CHECK(second.get_scale() == 65536);
  first.update(1024);
  CHECK(first.get_scale() == 1024);
}

TEST_CASE("grad_scaler: when it is not enabled every step is taken with the gradients as they are",
          "[training][unit]") {
  GradScalerOptions options;
  options.enabled = false;
  GradScaler scaler(options);
  OneWeight weight;
  CHECK(scaler.scale(2.0) == 2);
  CHECK(scaler.get_scale() == 1);
  iterate(scaler, weight, kInfinity);
  iterate(scaler, weight, kInfinity);
  CHECK(weight.steps == 2);
  std::vector<std::uint16_t> value = {0}, grad = {0x3c00};  // one half
  ddp::Parameter p;
  p.value = value.data();
  p.grad = grad.data();
  p.count = 1;
  p.dtype = ddp::DType::Float16;
  ddp::MasterWeights master({p});
  scaler.unscale(master);
  CHECK(static_cast<float*>(master.parameters()[0].grad)[0] == 1);
  static_cast<float*>(master.parameters()[0].grad)[0] = 0.5F;  // clipped
  CHECK(scaler.step(master, [&] { CHECK(static_cast<float*>(master.parameters()[0].grad)[0] == 0.5F); }));
}

TEST_CASE("grad_scaler: gradients of float16 are unscaled into master weights only", "[training][unit]") {
  GradScaler scaler;
  std::vector<std::uint16_t> value = {0x3c00, 0x3c00}, grad = {0x0001, 0x3c00};  // the smallest half, and one
  ddp::Parameter p;
  p.value = value.data();
  p.grad = grad.data();
  p.count = 2;
  p.dtype = ddp::DType::Float16;
  p.name = "weight";
  std::vector<ddp::Parameter> parameters = {p};
  CHECK_THROWS_WITH(scaler.unscale(parameters), Contains("gradient weight is float16"));
  ddp::MasterWeights master(parameters);
  scaler.unscale(master);
  const auto* unscaled = static_cast<const float*>(master.parameters()[0].grad);
  CHECK(unscaled[0] == 0x1p-40F);
  CHECK(unscaled[1] == 0x1p-16F);
  CHECK(scaler.step(master, [] {}));
  scaler.update();
  grad[1] = 0x7c00;  // infinity
  CHECK_FALSE(scaler.step(master, [] {}));
}

TEST_CASE("grad_scaler: a fixed scale never changes, and a step that overflows is left out", "[training][unit]") {
  ddp::GradScaler scaler(ddp::GradScalerOptions::fixed(128));
  float value = 0, grad = 0;
  std::vector<ddp::Parameter> parameters = {{"w", &value, &grad, 1}};
  for (const float g : {1.0F, std::numeric_limits<float>::infinity(), 1.0F}) {
    grad = g;
    CHECK(scaler.step(parameters, [] {}) == std::isfinite(g));
    scaler.update();
    CHECK(scaler.get_scale() == 128);
  }
}
