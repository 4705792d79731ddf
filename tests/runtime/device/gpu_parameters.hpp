// SPDX-License-Identifier: BSD-3-Clause
// Parameters of float32 in GPU memory, with gradients of their own, for scenarios that train.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/device/device_setting.hpp"

namespace ddp::test {

using Floats = std::vector<float>;

// Numbers in (-1, 1) without a pattern that a wrong split could match by chance.
inline Floats numbers(std::size_t count, std::uint64_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t x = seed * 1000003 + i + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    values[i] = static_cast<float>(static_cast<double>(x >> 11) * 0x1p-52 - 1);
  }
  return values;
}

// Buckets of 4000 bytes: there are several, which are made again after the first step if no gradient is empty.
inline DistributedDataParallelOptions small_buckets() {
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = 1;
  options.bucket_bytes = 4000;
  return options;
}

struct GpuParameters {
  // The values are the same on every rank.
  GpuParameters(Setting& s, const std::vector<std::size_t>& counts) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      values.push_back(std::make_unique<DeviceArray<float>>(s.gpu, numbers(counts[i], 900 + i), s.stream));
      gradients.push_back(std::make_unique<DeviceArray<float>>(s.gpu, Floats(counts[i]), s.stream));
      Parameter p("p" + std::to_string(i), static_cast<float*>(values.back()->data()),
                  static_cast<float*>(gradients.back()->data()), counts[i]);
      p.device = {DeviceKind::Cuda, s.gpu.index()};
      list.push_back(p);
    }
  }

  std::vector<std::unique_ptr<DeviceArray<float>>> values;
  std::vector<std::unique_ptr<DeviceArray<float>>> gradients;
  std::vector<Parameter> list;
};

}  // namespace ddp::test
