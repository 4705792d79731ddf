// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with communication hooks on GPU memory, next to the same hooks on the CPU.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/device/gpu_parameters.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

bool is_real_gpu() { return !variable("TEST_ONE_GPU").empty(); }

const std::vector<std::pair<const char*, BuiltinCommHook>> kHooks = {
    {"allreduce", allreduce_hook}, {"fp16", fp16_compress_hook}, {"bf16", bf16_compress_hook}};

// A model in both kinds of memory, with gradients of its own. `bytes` has each gradient's elements of any type.
template <typename T>
struct Twins {
  Twins(Setting& s, const std::vector<std::size_t>& counts) : setting(s) {
    for (const std::size_t count : counts) {
      values.emplace_back(count);
      gradients.emplace_back(count);
      gpu_values.push_back(std::make_unique<DeviceArray<T>>(s.gpu, values.back(), s.stream));
      gpu_gradients.push_back(std::make_unique<DeviceArray<T>>(s.gpu, values.back(), s.stream));
      on_cpu.emplace_back("p", values.back().data(), gradients.back().data(), count);
      on_gpu.push_back(on_cpu.back());
      on_gpu.back().value = gpu_values.back()->data();
      on_gpu.back().grad = gpu_gradients.back()->data();
      on_gpu.back().device = {DeviceKind::Cuda, s.gpu.index()};
    }
  }

  // Gives both the same gradients, which differ from rank to rank.
  void fill(int step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::size_t k = 0; k < gradients[i].size(); ++k) {
        const double x = static_cast<double>(step * 97 + setting.group.rank() * 31) + static_cast<double>(k) * 0.7;
        gradients[i][k] = static_cast<T>(std::sin(x) * (i == 0 ? 1e-3 : 100));
      }
      gpu_gradients[i]->write(gradients[i], setting.stream);
    }
  }
  // Compares what came out: the same bits over the fake NCCL, which adds 16-bit elements as the CPU's hook does. A real
  // one rounds each partial sum to 16 bits.
  void compare(const std::string& what) const {
    const double bound = is_real_gpu() ? 0.02 : 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::vector<T> gpu = gpu_gradients[i]->read(setting.stream);
      const double largest = i == 0 ? 1e-3 : 100;
      for (std::size_t k = 0; k < gpu.size(); ++k) {
        const double difference = std::abs(static_cast<double>(gpu[k] - gradients[i][k]));
        if (difference <= bound * largest) continue;
        return expect(false, what + ", gradient " + std::to_string(i) + ", element " + std::to_string(k));
      }
    }
  }

  Setting& setting;
  std::vector<std::vector<T>> values;
  std::vector<std::vector<T>> gradients;
  std::vector<std::unique_ptr<DeviceArray<T>>> gpu_values;
  std::vector<std::unique_ptr<DeviceArray<T>>> gpu_gradients;
  std::vector<Parameter> on_cpu;
  std::vector<Parameter> on_gpu;
};

template <typename T>
void compare_hooks(Setting& s, const std::string& type) {
  for (const auto& [name, hook] : kHooks) {
    Twins<T> twins(s, {5, 20'000, 300, 700});
    DistributedDataParallel cpu(s.group, twins.on_cpu, small_buckets());
    DistributedDataParallel gpu(s.group, twins.on_gpu, small_buckets());
    cpu.register_comm_hook(hook);
    gpu.register_comm_hook(hook);
    for (int step = 0; step < 3; ++step) {
      twins.fill(step);
      for (const std::size_t i : {2U, 3U, 1U, 0U}) {
        cpu.mark_ready(i);
        gpu.mark_ready(i);
      }
      cpu.synchronize();
      gpu.synchronize();
      twins.compare(std::string(name) + " of " + type + " in step " + std::to_string(step));
    }
  }
}

void compute_what_the_cpu_does() {
  Setting s("cpu:ddp,cuda:nccl");
  compare_hooks<float>(s, "float32");
  compare_hooks<double>(s, "float64");
}

// Elements of 16 bits already are averaged as they are.
void leave_16_bits_as_they_are() {
  Setting s;
  for (const auto& [name, hook] : kHooks) {
    DeviceArray<std::uint16_t> value(s.gpu, std::vector<std::uint16_t>(9), s.stream);
    DeviceArray<std::uint16_t> gradient(s.gpu, std::vector<std::uint16_t>(9, 0x3fc0), s.stream);  // 1.5
    Parameter p;
    p.value = value.data();
    p.grad = gradient.data();
    p.count = 9;
    p.dtype = DType::BFloat16;
    p.device = {DeviceKind::Cuda, s.gpu.index()};
    DistributedDataParallel model(s.group, {p});
    model.register_comm_hook(hook);
    model.mark_ready(0);
    model.synchronize();
    expect(gradient.read(s.stream) == std::vector<std::uint16_t>(9, 0x3fc0), std::string(name) + " of bfloat16");
  }
}

// Gradients come late on the stream of backward, and the result is read on another one; in the next step too, whose
// cast must not overtake the last one's use of the same memory.
void follow_the_streams() {
  Setting s;
  DeviceArray<float> value(s.gpu, std::vector<float>(1000), s.stream);
  DeviceArray<float> gradient(s.gpu, std::vector<float>(1000), s.stream);
  Parameter p("p", static_cast<float*>(value.data()), static_cast<float*>(gradient.data()), 1000);
  p.device = {DeviceKind::Cuda, s.gpu.index()};
  DistributedDataParallel model(s.group, {p});
  model.register_comm_hook(bf16_compress_hook);
  DeviceArray<float> source(s.gpu, std::vector<float>(1000, static_cast<float>(2 * s.group.rank())), s.stream);
  const auto average = static_cast<float>(s.group.size() - 1);
  model.mark_ready(0);  // what is done once
  model.synchronize();
  s.gpu.synchronize(s.stream);
  void* const other = s.gpu.make_stream();
  for (int step = 0; step < 3; ++step) {
    std::atomic<bool> released = false;
    std::atomic<bool> reached = false;
    s.gpu.hold(s.stream, &released);
    s.gpu.copy(gradient.data(), source.data(), 1000 * sizeof(float), s.stream);
    model.mark_ready(0);
    {
      const StreamGuard guard(other, s.gpu.index());
      model.synchronize();
      s.gpu.mark(other, &reached);
      expect(!reached, "the host does not wait, the stream does");
      released = true;
      std::vector<float> result(1000);
      s.gpu.download(result.data(), gradient.data(), 1000 * sizeof(float), other);
      expect(result == std::vector<float>(1000, average), "the average arrives in step " + std::to_string(step));
    }
  }
}

}  // namespace

Programs device_hook_programs() {
  return {
      {"device hooks compute what the CPU does", compute_what_the_cpu_does},
      {"device hooks leave 16 bits as they are", leave_16_bits_as_they_are},
      {"device hooks follow the streams", follow_the_streams},
  };
}

}  // namespace ddp::test
