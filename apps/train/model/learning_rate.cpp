// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/model/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace train {

double learning_rate(int t, int steps, int warmup, double peak) {
  if (t <= warmup) return peak * t / warmup;
  const double done = std::min(1.0, static_cast<double>(t - warmup) / (steps - warmup));
  return peak * (0.55 + 0.45 * std::cos(std::numbers::pi * done));
}

}  // namespace train
