// SPDX-License-Identifier: BSD-3-Clause
// Random numbers that are the same on every platform and in every version, unlike the distributions of <random>. Each
// thing that is random has a stream of its own, so leaving a fault out of a plan does not change the other faults.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>

namespace ddp::sim {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

// Seed of a world without chance: what is likely happens, and each duration is the middle of its range. So a change of
// the protocol shows only in what it affects, not in other numbers.
inline constexpr std::uint64_t kSteady = ~std::uint64_t{0};

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed), is_steady_(seed == kSteady) {}
  // Makes the stream of one thing, which the numbers name.
  Random(std::uint64_t seed, std::initializer_list<int> name) : Random(seed) {
    for (const int part : name) state_ = next() ^ static_cast<std::uint64_t>(part);
  }

  // splitmix64
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int count) { return is_steady_ ? 0 : static_cast<int>(next() % static_cast<std::uint64_t>(count)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  Duration between(Duration low, Duration high) {
    if (is_steady_) return low + (high - low) / 2;
    return low + Duration(static_cast<Duration::rep>(next() % static_cast<std::uint64_t>((high - low).count() + 1)));
  }
  bool percent(int chance) { return is_steady_ ? chance > 50 : below(100) < chance; }
  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<int>(choices.size())));
  }

 private:
  std::uint64_t state_;
  bool is_steady_;
};

}  // namespace ddp::sim
