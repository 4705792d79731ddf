// SPDX-License-Identifier: BSD-3-Clause
// Optimizers on GPU memory against those on the CPU.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/training/cuda/gpu_model.hpp"

using Catch::Matchers::Contains;
using ddp::test::GpuSetting;
using ddp::test::is_real_gpu;
using ddp::test::numbers;
using ddp::test::TwoModels;

namespace {

// Compares what both sides have computed: the same bits on the fake driver, whose pow() is the CPU's; on a GPU, the
// coefficients of Adam may differ in the last bit.
template <typename T>
void check_equal(const std::vector<T>& gpu, const std::vector<T>& cpu) {
  if (!is_real_gpu()) {
    CHECK(gpu == cpu);
    return;
  }
  REQUIRE(gpu.size() == cpu.size());
  const double bound = 8 * std::numeric_limits<T>::epsilon();
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    if (std::abs(gpu[i] - cpu[i]) > bound * (1 + std::abs(cpu[i]))) FAIL("element " << i << ": " << gpu[i] - cpu[i]);
  }
}

const std::vector<std::size_t> kChunkCounts = {3, 0, 16384, 1, 33000};  // chunks of one element, whole and in parts

template <typename T>
void set_all(TwoModels<T>& models, unsigned seed) {
  for (std::size_t i = 0; i < models.values.size(); ++i) {
    models.set_gradients(i, numbers<T>(models.values[i].size(), seed + static_cast<unsigned>(i)));
  }
}

// Steps both sides with parameters in two groups and a learning rate that changes.
template <typename Optimizer, typename T>
void compare(const typename Optimizer::Options& options) {
  GpuSetting setting;
  TwoModels<T> models(setting, kChunkCounts);
  for (std::size_t i = 0; i < kChunkCounts.size(); ++i)
    models.set_values(i, numbers<T>(kChunkCounts[i], 7 + unsigned(i)));
  const auto groups = [&](const std::vector<ddp::Parameter>& all) {
    typename Optimizer::Options other = options;
    other.lr = 0.5 * options.lr;
    other.maximize = true;
    return std::vector<typename Optimizer::Group>{{{all.begin(), all.begin() + 3}, options},
                                                  {{all.begin() + 3, all.end()}, other}};
  };
  Optimizer cpu(groups(models.on_cpu()));
  Optimizer gpu(groups(models.on_gpu()));
  for (unsigned step = 0; step < 3; ++step) {
    set_all(models, 100 * step);
    for (Optimizer* each : {&cpu, &gpu}) each->options(0).lr = options.lr / (1 + step / 2);
    cpu.step();
    gpu.step();
  }
  for (std::size_t i = 0; i < kChunkCounts.size(); ++i) check_equal(models.gpu_value(i), models.values[i]);
  CHECK(gpu.steps_taken() == 3);
}

template <typename Optimizer>
void compare_types(const typename Optimizer::Options& options) {
  compare<Optimizer, float>(options);
  compare<Optimizer, double>(options);
}

}  // namespace

TEST_CASE("GPU optimizer: AdamW and Adam come to what the CPU does", "[training][unit]") {
  ddp::AdamWOptions adamw;
  adamw.lr = 0.01;
  compare_types<ddp::AdamW>(adamw);
  ddp::AdamOptions adam;
  adam.weight_decay = 0.1;
  compare_types<ddp::Adam>(adam);
}

TEST_CASE("GPU optimizer: SGD comes to what the CPU does, with momentum, Nesterov's, and without", "[training][unit]") {
  ddp::SGDOptions options;
  options.lr = 0.1;
  options.weight_decay = 0.01;
  compare_types<ddp::SGD>(options);
  options.momentum = 0.9;
  options.dampening = 0.5;
  compare_types<ddp::SGD>(options);
  options.dampening = 0;
  options.nesterov = true;
  compare_types<ddp::SGD>(options);
}

TEST_CASE("GPU optimizer: a step follows the current stream, and the host does not wait", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {5});
  models.set_values(0, {1, 2, 3, 4, 5});
  models.set_gradients(0, {0, 0, 0, 0, 0});
  ddp::SGDOptions options;
  options.lr = 1;
  ddp::SGD optimizer(models.on_gpu(), options);
  optimizer.step();  // what is done once: the list of tensors goes to the GPU
  setting.gpu.synchronize(setting.stream);
  ddp::test::DeviceArray<float> ones(setting.gpu, std::vector<float>(5, 1), setting.stream);
  setting.gpu.synchronize(setting.stream);
  std::atomic<bool> released = false;
  std::atomic<bool> reached = false;
  setting.gpu.hold(setting.stream, &released);
  setting.gpu.copy(models.gpu_gradients[0]->data(), ones.data(), 5 * sizeof(float), setting.stream);
  optimizer.set_lr(2);
  optimizer.step();
  setting.gpu.mark(setting.stream, &reached);
  CHECK_FALSE(reached);
  released = true;
  CHECK(models.gpu_value(0) == std::vector<float>{-1, 0, 1, 2, 3});
  CHECK(reached);
}

TEST_CASE("GPU optimizer: the state goes to an optimizer on the CPU and back", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {10, 3});
  for (std::size_t i = 0; i < 2; ++i) models.set_values(i, numbers<float>(models.values[i].size(), 1 + unsigned(i)));
  ddp::AdamW gpu(models.on_gpu());
  ddp::AdamW cpu(models.on_cpu());
  set_all(models, 1);
  gpu.step();
  gpu.step();
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<float> values = models.gpu_value(i);
    std::copy(values.begin(), values.end(), models.values[i].begin());  // the optimizer knows where they are
  }
  cpu.load_state_dict(gpu.state_dict());
  CHECK(cpu.steps_taken() == 2);
  CHECK(gpu.tensors().back().is_scalar);
  gpu.step();
  cpu.step();
  for (std::size_t i = 0; i < 2; ++i) check_equal(models.gpu_value(i), models.values[i]);
  // Back: another optimizer on the GPU takes the CPU's state.
  ddp::AdamW other(models.on_gpu());
  other.load_state_dict(cpu.state_dict());
  CHECK(other.steps_taken() == 3);
  other.step();
  cpu.step();
  for (std::size_t i = 0; i < 2; ++i) check_equal(models.gpu_value(i), models.values[i]);
}

TEST_CASE("GPU optimizer: parameters and gradients may move between steps", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {4, 4});
  models.set_values(0, {1, 1, 1, 1});
  models.set_values(1, {5, 5, 5, 5});
  models.set_gradients(0, {1, 1, 1, 1});
  models.set_gradients(1, {2, 2, 2, 2});
  ddp::SGDOptions options;
  options.lr = 1;
  ddp::SGD optimizer({models.on_gpu()[0]}, options);
  optimizer.step();
  optimizer.set_gradient(0, models.gpu_gradients[1]->data());
  optimizer.set_value(0, models.gpu_values[1]->data());
  optimizer.step();
  CHECK(models.gpu_value(0) == std::vector<float>(4, 0));
  CHECK(models.gpu_value(1) == std::vector<float>(4, 3));
}

TEST_CASE("GPU optimizer: what cannot work is refused with the parameter or the reason", "[training][unit]") {
  GpuSetting setting;
  TwoModels<float> models(setting, {4, 4});
  std::vector<ddp::Parameter> mixed = {models.on_gpu()[0], models.on_cpu()[1]};
  CHECK_THROWS_WITH(ddp::AdamW(mixed), Contains("p1 is not on the device of the first parameter"));
  std::vector<ddp::Parameter> small = models.on_gpu();
  small[0].dtype = ddp::DType::BFloat16;
  CHECK_THROWS_WITH(ddp::AdamW(small), Contains("p0 is not float32 or float64"));
  ddp::SGDOptions nesterov;
  nesterov.nesterov = true;
  ddp::SGD wrong(models.on_gpu(), nesterov);
  CHECK_THROWS_WITH(wrong.step(), Contains("Nesterov momentum needs a momentum above 0"));
  ddp::SGD late(models.on_gpu());
  late.step();
  late.options().momentum = 0.9;  // too late: it has no state
  CHECK_THROWS_WITH(late.step(), Contains("SGD with momentum: an array is null"));
  CHECK_THROWS_WITH(ddp::clip_grad_norm(models.on_gpu(), 1), Contains("not in CPU memory"));
}
