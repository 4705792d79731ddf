// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace train {
namespace {
constexpr float kBeta1 = 0.9F;
constexpr float kBeta2 = 0.99F;  // runs are short: 0.999 would remember the first steps to the end
constexpr float kEpsilon = 1e-8F;
}  // namespace

void adamw_step(Parameters& parameters, int t, float learning_rate, float weight_decay) {
  const auto step_size = static_cast<float>(learning_rate / (1 - std::pow(kBeta1, t)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t)));
  for (Parameter& p : parameters) {
    const float keep = p.shape.size() > 1 ? 1 - learning_rate * weight_decay : 1;
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      const float g = p.gradient[i];
      p.mean[i] = kBeta1 * p.mean[i] + (1 - kBeta1) * g;
      p.square[i] = kBeta2 * p.square[i] + (1 - kBeta2) * g * g;
      p.value[i] = keep * p.value[i] - step_size * p.mean[i] / (std::sqrt(p.square[i]) * correction + kEpsilon);
    }
  }
}

double clip_gradients(Parameters& parameters, double limit) {
  double squares = 0;
  for (const Parameter& p : parameters) {
    for (const float g : p.gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  const double norm = std::sqrt(squares);
  if (limit > 0 && norm > limit) {
    const auto scale = static_cast<float>(limit / norm);
    for (Parameter& p : parameters) {
      for (float& g : p.gradient) g *= scale;
    }
  }
  return norm;
}

float learning_rate(int t, int steps, int warmup, float peak) {
  if (t <= warmup) return peak * static_cast<float>(t) / static_cast<float>(warmup);
  const double done = std::min(1.0, static_cast<double>(t - warmup) / (steps - warmup));
  return static_cast<float>(peak * (0.55 + 0.45 * std::cos(std::numbers::pi * done)));
}

}  // namespace train
