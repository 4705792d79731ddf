// SPDX-License-Identifier: BSD-3-Clause
// A model's values twice: in CPU memory and, with the same numbers, in a GPU's. The GPU is the fake driver's, or with
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

// Chooses the driver. Skips the test where there is no GPU.
inline int chosen_gpu() {
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
inline std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::vector<float> values(count);
  unsigned state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<double>(state) / 2147483648.0 - 1);
  }
  return values;
}

// Parameters of float32 on both sides.
struct TwoModels {
  TwoModels(GpuSetting& s, const std::vector<std::size_t>& counts) : setting(s) {
    for (const std::size_t count : counts) {
      values.emplace_back(count);
      gpu_values.push_back(std::make_unique<DeviceArray<float>>(s.gpu, count));
    }
  }

  std::vector<Parameter> on_cpu() {
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < values.size(); ++i) {
      parameters.emplace_back("p" + std::to_string(i), values[i].data(), values[i].size());
    }
    return parameters;
  }
  std::vector<Parameter> on_gpu() {
    std::vector<Parameter> parameters = on_cpu();
    for (std::size_t i = 0; i < values.size(); ++i) {
      parameters[i].value = gpu_values[i]->data();
      parameters[i].device = {DeviceKind::Cuda, setting.gpu.index()};
    }
    return parameters;
  }

  // Gives both sides the same numbers.
  void set_values(std::size_t i, const std::vector<float>& numbers) {
    values[i] = numbers;
    gpu_values[i]->write(numbers, setting.stream);
  }
  std::vector<float> gpu_value(std::size_t i) const { return gpu_values[i]->read(setting.stream); }

  GpuSetting& setting;
  std::vector<std::vector<float>> values;
  std::vector<std::unique_ptr<DeviceArray<float>>> gpu_values;
};

}  // namespace ddp::test
