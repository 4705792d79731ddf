// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with communication hooks on GPU memory, next to the same hooks in CPU memory.
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/device/gpu_parameters.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

// A model in both kinds of memory, with gradients of its own.
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
  // Compares what came out: the same bits over the fake NCCL. A real one may add in another order.
  void compare(const std::string& what) const {
    const double bound = variable("TEST_ONE_GPU").empty() ? 0 : 1e-5;
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
  Twins<T> twins(s, {5, 20'000, 300, 700});
  DistributedDataParallel cpu(s.group, twins.on_cpu, small_buckets());
  DistributedDataParallel gpu(s.group, twins.on_gpu, small_buckets());
  cpu.register_comm_hook(allreduce_hook);
  gpu.register_comm_hook(allreduce_hook);
  for (int step = 0; step < 3; ++step) {
    twins.fill(step);
    for (const std::size_t i : {2U, 3U, 1U, 0U}) {
      cpu.mark_ready(i);
      gpu.mark_ready(i);
    }
    cpu.synchronize();
    gpu.synchronize();
    twins.compare(type + " in step " + std::to_string(step));
  }
}

void compute_what_the_cpu_does() {
  Setting s("cpu:ddp,cuda:nccl");
  compare_hooks<float>(s, "float32");
  compare_hooks<double>(s, "float64");
}

// A hook that is refused leaves the model as it was.
void refuse_16_bits() {
  Setting s;
  GpuParameters parameters(s, {9});
  DistributedDataParallel model(s.group, parameters.list);
  report_failure("fp16", [&] { model.register_comm_hook(fp16_compress_hook); });
  report_failure("bf16", [&] { model.register_comm_hook(bf16_compress_hook); });
  model.register_comm_hook(allreduce_hook);
}

// Gradients come late on the stream of backward, and the result is read on another one; in the next step too.
void follow_the_streams() {
  Setting s;
  DeviceArray<float> value(s.gpu, std::vector<float>(1000), s.stream);
  DeviceArray<float> gradient(s.gpu, std::vector<float>(1000), s.stream);
  Parameter p("p", static_cast<float*>(value.data()), static_cast<float*>(gradient.data()), 1000);
  p.device = {DeviceKind::Cuda, s.gpu.index()};
  DistributedDataParallel model(s.group, {p});
  model.register_comm_hook(allreduce_hook);
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
      {"device hooks refuse 16 bits", refuse_16_bits},
      {"device hooks follow the streams", follow_the_streams},
  };
}

}  // namespace ddp::test
