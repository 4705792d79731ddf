// SPDX-License-Identifier: BSD-3-Clause
// What PowerSGD on the CPU and its kernels for GPUs compute alike, element by element. It includes only what kernels
// can.
#pragma once

#include <cstdint>

namespace ddp::runtime {

constexpr std::uint64_t kRandomStep = 0x9e3779b97f4a7c15U;

// Returns the number in [-1, 1) that splitmix64 gives once its state is `state`: two multiplications, and the same on
// every machine. Each number adds kRandomStep to the state first.
template <typename T>
T random_of(std::uint64_t state) {
  std::uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
  z = (z ^ z >> 27) * 0x94d049bb133111ebU;
  z ^= z >> 31;
  const auto bits = static_cast<std::int32_t>(z >> 40) - (1 << 23);
  return static_cast<T>(bits) * static_cast<T>(0x1p-23);
}

// What is left of a column after all others are taken away is rounding error if it is no longer than this part of the
// column. An epsilon is the distance from 1 to the next number of the type.
constexpr double kNegligibleEpsilons = 4;

}  // namespace ddp::runtime
