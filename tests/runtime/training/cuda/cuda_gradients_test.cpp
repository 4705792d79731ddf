// SPDX-License-Identifier: BSD-3-Clause
// The loss scale, norms and master weights on GPU memory against those on the CPU.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/training/cuda/gpu_model.hpp"

using Catch::Matchers::Contains;
using ddp::test::GpuSetting;
using ddp::test::numbers;
using ddp::test::TwoModels;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::uint16_t> small_numbers(std::size_t count, ddp::DType dtype, unsigned seed) {
  std::vector<float> wide = numbers<float>(count, seed);
  std::vector<std::uint16_t> narrow(count);
  ddp::detail::check(ddp_buffer_convert(ddp::Buffer(wide).c(), ddp::Buffer(narrow.data(), count, dtype).c()));
  return narrow;
}

}  // namespace

TEST_CASE("GPU grad scaler: steps are left out and the scale moves as on the CPU", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {4, 20000});
  ddp::GradScalerOptions options;
  options.init_scale = 1024;
  options.growth_interval = 2;
  options.max_scale = 2048;
  options.min_scale = 256;
  ddp::GradScaler cpu_scaler(options);
  ddp::cuda::GradScaler gpu_scaler(setting.gpu.index(), options);
  ddp::SGD cpu(models.on_cpu());
  ddp::SGD gpu(models.on_gpu());
  const std::vector<float> specials = {1, kInfinity, kNan, 1, 1, -kInfinity, kNan, 1, 1, 1, 1, 1, 1};
  for (const float special : specials) {
    std::vector<float> gradients = numbers<float>(20000, 3);
    gradients[19999] = special;
    models.set_gradients(0, {1, 2, 3, 4});
    models.set_gradients(1, gradients);
    cpu_scaler.step(cpu);
    cpu_scaler.update();
    gpu_scaler.unscale(gpu);
    gpu_scaler.step(gpu);
    gpu_scaler.update();
    CHECK(gpu_scaler.get_scale() == cpu_scaler.get_scale());
    CHECK(gpu_scaler.state_dict().growth_tracker == cpu_scaler.state_dict().growth_tracker);
    CHECK(gpu.steps_taken() == cpu.steps_taken());
    for (std::size_t i = 0; i < 2; ++i) CHECK(models.gpu_value(i) == models.values[i]);
  }
  CHECK(gpu.steps_taken() == 9);
}

TEST_CASE("GPU grad scaler: a state is restored, and calls in a wrong order are refused", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {4});
  ddp::SGD optimizer(models.on_gpu());
  ddp::cuda::GradScaler scaler(setting.gpu.index());
  CHECK_THROWS_WITH(scaler.step(optimizer), Contains("step() was called before unscale()"));
  CHECK_THROWS_WITH(scaler.update(), Contains("before anything was unscaled"));
  scaler.unscale(optimizer);
  CHECK_THROWS_WITH(scaler.unscale(optimizer), Contains("unscale() was called twice"));
  ddp::GradScalerState state;
  state.scale = 8;
  state.growth_interval = 4;
  state.growth_tracker = 3;
  scaler.load_state_dict(state);
  scaler.update();
  CHECK(scaler.get_scale() == 16);
  ddp::GradScalerOptions wrong;
  wrong.growth_factor = 1;
  CHECK_THROWS_WITH(ddp::cuda::GradScaler(setting.gpu.index(), wrong), Contains("growth_factor must be above 1"));
}

TEST_CASE("GPU master weights: 16-bit weights are trained as on the CPU, with a scale and clipping",
          "[training][unit]") {
  const ddp::DType dtype = GENERATE(ddp::DType::Float16, ddp::DType::BFloat16);
  GpuSetting setting;
  const std::vector<std::size_t> counts = {7, 17000};
  TwoModels<std::uint16_t> models(setting, counts, dtype);
  for (std::size_t i = 0; i < counts.size(); ++i) models.set_values(i, small_numbers(counts[i], dtype, unsigned(i)));
  ddp::MasterWeights cpu_master(models.on_cpu());
  ddp::cuda::MasterWeights gpu_master(models.on_gpu());
  ddp::SGDOptions sgd;
  sgd.lr = 0.01;
  ddp::SGD cpu(cpu_master.parameters(), sgd);
  ddp::SGD gpu(gpu_master.parameters(), sgd);
  ddp::cuda::GradientNorm norm(gpu_master.parameters());
  ddp::GradScalerOptions options;
  options.init_scale = 4;
  ddp::GradScaler cpu_scaler(options);
  ddp::cuda::GradScaler gpu_scaler(setting.gpu.index(), options);
  for (unsigned step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      models.set_gradients(i, small_numbers(counts[i], dtype, 10 * step + unsigned(i)));
    }
    cpu_scaler.unscale(cpu_master);
    const double cpu_norm = ddp::clip_grad_norm(cpu_master.parameters(), 0.5);
    cpu_scaler.step(cpu_master, [&] { cpu.step(); });
    cpu_master.write_values();
    cpu_scaler.update();
    gpu_scaler.unscale(gpu_master);
    norm.clip(0.5);
    gpu_scaler.step(gpu);
    gpu_master.write_values();
    gpu_scaler.update();
    CHECK(norm.value() == Approx(cpu_norm).epsilon(1e-13));
  }
  // The factor of clipping may differ in the last bit of a float, and so may a weight of 16 bits.
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::vector<std::uint16_t> values = models.gpu_value(i);
    std::size_t others = 0;
    for (std::size_t e = 0; e < values.size(); ++e) {
      const int difference = int(values[e]) - int(models.values[i][e]);
      if (std::abs(difference) > 1) FAIL("element " << e << " differs by " << difference);
      others += difference != 0 ? 1 : 0;
    }
    CHECK(others <= values.size() / 1000);
  }
}

TEST_CASE("GPU master weights: float32 parameters are stepped in place, others are refused", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {3});
  ddp::cuda::MasterWeights master(models.on_gpu());
  CHECK(master.parameters()[0].value == models.gpu_values[0]->data());
  CHECK_THROWS_WITH(ddp::cuda::MasterWeights(models.on_cpu()), Contains("p0 is not in the memory of the GPU"));
  std::vector<ddp::Parameter> without = models.on_gpu();
  without[0].grad = nullptr;
  CHECK_THROWS_WITH(ddp::cuda::MasterWeights(without), Contains("p0 has no gradient"));
}

TEST_CASE("GPU gradient norm: each norm is the CPU's, and gradients are scaled to the limit", "[training][unit]") {
  const double norm_type = GENERATE(1.0, 2.0, 3.0, ddp::kInfinityNorm);
  GpuSetting setting;
  TwoModels<float> models(setting, {40000, 0, 5});
  for (std::size_t i = 0; i < 3; ++i) models.set_gradients(i, numbers<float>(models.values[i].size(), unsigned(i)));
  ddp::cuda::GradientNorm norm(models.on_gpu());
  const double before = ddp::clip_grad_norm(models.on_cpu(), 0.25, norm_type);
  norm.clip(0.25, norm_type);
  CHECK(norm.value() == Approx(before).epsilon(1e-12));
  const std::vector<float> clipped = models.gpu_gradient(0);
  for (std::size_t i = 0; i < clipped.size(); ++i) {
    if (std::abs(clipped[i] - models.gradients[0][i]) > 2e-7F * std::abs(models.gradients[0][i])) FAIL("element " << i);
  }
  norm.clip(1, norm_type);  // it is below the limit now
  CHECK(norm.value() == Approx(0.25).epsilon(1e-4));
  CHECK(models.gpu_gradient(0) == clipped);
}

TEST_CASE("GPU gradient norm: a gradient that is not a number shows in the norm", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {300});
  std::vector<float> gradients(300, 1);
  gradients[150] = kNan;
  const double norm_type = GENERATE(2.0, ddp::kInfinityNorm);
  models.set_gradients(0, gradients);
  ddp::cuda::GradientNorm norm(models.on_gpu());
  norm.clip(1, norm_type);
  CHECK(std::isnan(norm.value()));
  CHECK(std::isnan(models.gpu_gradient(0)[0]));
}
