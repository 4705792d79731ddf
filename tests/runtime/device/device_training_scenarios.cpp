// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with optimizers, the loss scale and clipping on GPU memory, as ranks of a job use them.
#include <cmath>
#include <limits>
#include <vector>

#include "tests/runtime/device/device_setting.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

using Floats = std::vector<float>;

// One parameter on the GPU, of which each rank has its own gradient.
struct Weights {
  Weights(Setting& s, const Floats& numbers)
      : setting(s), value(s.gpu, numbers, s.stream), gradient(s.gpu, Floats(numbers.size(), 0), s.stream) {
    parameter.name = "w";
    parameter.value = value.data();
    parameter.grad = gradient.data();
    parameter.count = numbers.size();
    parameter.device = {ddp::DeviceKind::Cuda, s.gpu.index()};
  }
  void set_gradient(const Floats& numbers) { gradient.write(numbers, setting.stream); }

  Setting& setting;
  DeviceArray<float> value;
  DeviceArray<float> gradient;
  ddp::Parameter parameter;
};

ddp::SGDOptions plain() {
  ddp::SGDOptions options;
  options.lr = 1;
  return options;
}

// An overflow on the last rank leaves out the step of all ranks, and lowers every scale.
void shares_overflows() {
  Setting s("nccl");
  Weights weights(s, {10, 10});
  ddp::SGD optimizer({weights.parameter}, plain());
  ddp::GradScalerOptions options;
  options.init_scale = 4;
  ddp::cuda::GradScaler scaler(s.gpu.index(), options, s.group);
  const bool is_last = s.group.rank() == s.group.size() - 1;
  for (const bool overflows : {true, false}) {
    weights.set_gradient({4, overflows && is_last ? std::numeric_limits<float>::infinity() : 8});
    scaler.unscale(optimizer);
    scaler.step(optimizer);
    scaler.update();
  }
  expect(scaler.get_scale() == 2, "the scale has fallen once");
  expect(optimizer.steps_taken() == 1, "one step was taken");
  expect(weights.value.read(s.stream) == Floats{8, 6}, "the second step is taken, at the lower scale");
}

// The norm is taken over all shares together, and each rank scales its own.
void clips_shares() {
  Setting s("nccl");
  const double expected = 5 * std::sqrt(static_cast<double>(s.group.size()));
  Weights weights(s, {0, 0, 0});
  weights.set_gradient({3, 0, 4});  // each share has the norm 5
  ddp::cuda::GradientNorm norm(s.group, {weights.parameter});
  norm.clip(1);
  expect(std::abs(norm.value() - expected) < 1e-9, "the norm of all shares");
  expect(std::abs(weights.gradient.read(s.stream)[0] - 3 / expected) < 1e-5, "gradients are scaled");
  weights.set_gradient({s.group.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1, 1, 1});
  norm.clip(1, ddp::kInfinityNorm);
  expect(std::isnan(norm.value()), "one share's NaN is every rank's");
}

// Gradients averaged over NCCL go into the optimizer without a host that waits.
void trains() {
  Setting s("nccl");
  Weights weights(s, {1, 2, 3, 4});
  ddp::DistributedDataParallel model(s.group, {weights.parameter});
  ddp::AdamW optimizer({weights.parameter});
  ddp::cuda::GradientNorm norm(optimizer.parameters());
  Floats value = {1, 2, 3, 4};
  Floats gradient(4);
  ddp::AdamW on_cpu({{"w", value.data(), gradient.data(), 4}});
  const float mean = static_cast<float>(s.group.size() - 1) / 2;
  for (int step = 1; step <= 3; ++step) {
    weights.set_gradient(Floats(4, static_cast<float>(s.group.rank() * step)));
    model.mark_ready(0);
    model.synchronize();
    norm.clip(100);
    optimizer.step();
    gradient.assign(4, mean * static_cast<float>(step));
    on_cpu.step();
  }
  const Floats result = weights.value.read(s.stream);
  for (std::size_t i = 0; i < 4; ++i) expect(std::abs(result[i] - value[i]) < 1e-6F, "as on the CPU");
}

}  // namespace

Programs device_training_programs() {
  return {
      {"device training shares overflows", shares_overflows},
      {"device training clips shares", clips_shares},
      {"device training steps", trains},
  };
}

}  // namespace ddp::test
