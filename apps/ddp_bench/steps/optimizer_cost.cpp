// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/steps/optimizer_cost.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "apps/ddp_bench/device_stream.hpp"
#include "apps/ddp_bench/steps/model_shapes.hpp"
#include "ddp/adamw.hpp"
#include "ddp/cuda.hpp"
#include "ddp/cuda/gradient_norm.hpp"
#include "ddp/cuda/master_weights.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUntimedRounds = 3;
constexpr int kCalls = 20;  // in a block
constexpr double kLearningRate = 1e-3;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void require_near(const char* what, double value, double expected) {
  if (std::abs(value - expected) <= 1e-5 * std::abs(expected)) return;
  throw std::runtime_error(std::string(what) + " is " + std::to_string(value) + " instead of " +
                           std::to_string(expected));
}

OptimizerCost cost_of(const char* what, int rounds, const DeviceStream& gpu, const std::function<void()>& call) {
  std::vector<double> whole;
  std::vector<double> host;
  for (int round = -kUntimedRounds; round < rounds; ++round) {
    gpu.synchronize();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const double returned = microseconds_since(start);
    gpu.synchronize();
    if (round < 0) continue;
    whole.push_back(microseconds_since(start) / kCalls);
    host.push_back(returned / kCalls);
  }
  return {what, median(whole), median(host)};
}

}  // namespace

std::vector<OptimizerCost> optimizer_costs(const std::string& model, int rounds) {
  const DeviceStream gpu(0);
  const StreamGuard current(gpu.stream, gpu.device.index());
  const std::vector<ParameterShape> shapes = model_shapes(model);
  const std::size_t elements = elements_of(shapes);
  const collectives::DeviceMemory values(gpu.device, elements * sizeof(float));
  const collectives::DeviceMemory gradients(gpu.device, elements * sizeof(float));
  gpu.device.clear(values.get(), elements * sizeof(float), gpu.stream);
  const std::vector<float> ones(elements, 1);
  gpu.device.upload(gradients.get(), ones.data(), elements * sizeof(float), gpu.stream);

  std::vector<Parameter> parameters =
      parameters_in(shapes, static_cast<float*>(values.get()), static_cast<float*>(gradients.get()));
  for (Parameter& parameter : parameters) parameter.device = {DeviceKind::Cuda, gpu.device.index()};
  AdamWOptions options;
  options.lr = kLearningRate;
  AdamW optimizer({{parameters, options}});
  cuda::GradientNorm norm(parameters);

  optimizer.step();  // all gradients are 1, and a first step then is the learning rate
  std::vector<float> stepped(elements);
  gpu.device.download(stepped.data(), values.get(), elements * sizeof(float), gpu.stream);
  const auto [least, most] = std::minmax_element(stepped.begin(), stepped.end());
  require_near("the least value after a step", *least, -kLearningRate);
  require_near("the largest value after a step", *most, -kLearningRate);
  const OptimizerCost adamw = cost_of("adamw", rounds, gpu, [&] { optimizer.step(); });
  norm.clip(1);
  require_near("the gradients' norm", norm.value(), std::sqrt(static_cast<double>(elements)));
  const OptimizerCost clip = cost_of("clip", rounds, gpu, [&] { norm.clip(1); });

  // That memory now holds parameters of 16 bits, all of them zero.
  gpu.device.clear(values.get(), elements * sizeof(float), gpu.stream);
  gpu.device.clear(gradients.get(), elements * sizeof(float), gpu.stream);
  for (Parameter& parameter : parameters) parameter.dtype = DType::BFloat16;
  cuda::MasterWeights masters(parameters);
  return {adamw, clip, cost_of("read_gradients", rounds, gpu, [&] { masters.read_gradients(); }),
          cost_of("write_values", rounds, gpu, [&] { masters.write_values(); })};
}

}  // namespace ddp::bench
