// SPDX-License-Identifier: BSD-3-Clause
// A model twice: in the CPU's memory and, with the same values, in a GPU's. The GPU is the fake driver's, or with
// TEST_REAL_GPU the first real one.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/device/device_job.hpp"
#include "tests/runtime/device/test_gpu.hpp"
#include "tests/support/hosts.hpp"

namespace ddp::test {

inline bool is_real_gpu() { return std::getenv("TEST_REAL_GPU") != nullptr; }

// Chooses the driver. Skips the test where there is no GPU, or libddp has no kernels.
inline int chosen_gpu() {
  need_kernels();
  if (!is_real_gpu()) setenv("DDP_CUDA_LIBRARY", FAKE_CUDA, 1);
  if (is_real_gpu() && real_gpus() == 0) testing::skip("there is no CUDA device");
  return 0;
}

struct GpuSetting {
  Gpu gpu = Gpu(chosen_gpu());
  void* stream = gpu.make_stream();
  ddp::StreamGuard guard = ddp::StreamGuard(stream, gpu.index());
};

// Numbers between -1 and 1 that differ from place to place.
template <typename T>
std::vector<T> numbers(std::size_t count, unsigned seed) {
  std::vector<T> values(count);
  unsigned state = seed * 2654435761U + 1;
  for (T& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<T>(static_cast<double>(state) / 2147483648.0 - 1);
  }
  return values;
}

// Parameters of one type on both sides. Elements of uint16_t are float16 or bfloat16.
template <typename T>
struct TwoModels {
  TwoModels(GpuSetting& s, const std::vector<std::size_t>& counts, DType dtype_ = dtype_of<T>())
      : setting(s), dtype(dtype_) {
    for (const std::size_t count : counts) {
      values.emplace_back(count);
      gradients.emplace_back(count);
      gpu_values.push_back(std::make_unique<DeviceArray<T>>(s.gpu, count));
      gpu_gradients.push_back(std::make_unique<DeviceArray<T>>(s.gpu, count));
    }
  }

  std::vector<Parameter> on_cpu() {
    return list([&](Parameter& p, std::size_t i) {
      p.value = values[i].data();
      p.grad = gradients[i].data();
    });
  }
  std::vector<Parameter> on_gpu() {
    return list([&](Parameter& p, std::size_t i) {
      p.value = gpu_values[i]->data();
      p.grad = gpu_gradients[i]->data();
      p.device = {DeviceKind::Cuda, setting.gpu.index()};
    });
  }

  // Give both sides the same numbers.
  void set_values(std::size_t i, const std::vector<T>& numbers) {
    values[i] = numbers;
    gpu_values[i]->write(numbers, setting.stream);
  }
  void set_gradients(std::size_t i, const std::vector<T>& numbers) {
    gradients[i] = numbers;
    gpu_gradients[i]->write(numbers, setting.stream);
  }
  std::vector<T> gpu_value(std::size_t i) const { return gpu_values[i]->read(setting.stream); }
  std::vector<T> gpu_gradient(std::size_t i) const { return gpu_gradients[i]->read(setting.stream); }

  GpuSetting& setting;
  DType dtype;
  std::vector<std::vector<T>> values;
  std::vector<std::vector<T>> gradients;
  std::vector<std::unique_ptr<DeviceArray<T>>> gpu_values;
  std::vector<std::unique_ptr<DeviceArray<T>>> gpu_gradients;

 private:
  template <typename Place>
  std::vector<Parameter> list(const Place& place) {
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < values.size(); ++i) {
      Parameter p;
      p.name = "p" + std::to_string(i);
      p.count = values[i].size();
      p.dtype = dtype;
      place(p, i);
      parameters.push_back(p);
    }
    return parameters;
  }
};

}  // namespace ddp::test
