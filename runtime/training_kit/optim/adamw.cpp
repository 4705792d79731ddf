// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/optim/adamw.hpp"

#include <cmath>

#include "runtime/training_kit/checks.hpp"

namespace ddp::training {
namespace {

// The loop's coefficients, computed once in 64 bits and then rounded to the elements' type, as PyTorch does.
template <typename T>
struct AdamCoefficients {
  T sign;
  T keep;         // AdamW: factor of the value, from weight decay
  T decay;        // Adam: factor of the value that is added to the gradient
  T new_share;    // weight of the gradient in its running mean
  T keep_square;  // factor of the running mean of squares
  T new_square;
  T correction;  // divisor of the square root: the running mean began at 0
  T eps;
  T step;
};

AdamCoefficients<double> adam_coefficients(const ddp_adamw_options& n) {
  const auto steps = static_cast<double>(n.step);
  return {n.maximize != 0 ? -1.0 : 1.0,
          1 - n.lr * n.weight_decay,
          n.weight_decay,
          1 - n.beta1,
          n.beta2,
          1 - n.beta2,
          std::sqrt(1 - std::pow(n.beta2, steps)),
          n.eps,
          -(n.lr / (1 - std::pow(n.beta1, steps)))};
}

template <typename T>
AdamCoefficients<T> rounded(const AdamCoefficients<double>& k) {
  return {static_cast<T>(k.sign),       static_cast<T>(k.keep),        static_cast<T>(k.decay),
          static_cast<T>(k.new_share),  static_cast<T>(k.keep_square), static_cast<T>(k.new_square),
          static_cast<T>(k.correction), static_cast<T>(k.eps),         static_cast<T>(k.step)};
}

// Steps one element; returns its new value. What decays is AdamW's value, or Adam's gradient towards it.
template <bool adamw, typename T>
[[gnu::always_inline]] inline T adam_element(T value, T grad, T& mean, T& square, const AdamCoefficients<T>& k) {
  const T g = adamw ? grad * k.sign : grad * k.sign + k.decay * value;
  const T m = mean + k.new_share * (g - mean);
  const T s = square * k.keep_square + k.new_square * g * g;
  mean = m;
  square = s;
  const T kept = adamw ? value * k.keep : value;
  return kept + k.step * m / (std::sqrt(s) / k.correction + k.eps);
}

template <bool adamw>
struct Step {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* mean, T* square, T* updated,
                                         std::size_t count, AdamCoefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) updated[i] = adam_element<adamw>(value[i], grad[i], mean[i], square[i], k);
  }
};

template <bool adamw, typename T>
void step_all(const ddp_adamw_options& numbers, const ddp_adamw_arrays& a, collectives::VectorUnit unit) {
  collectives::run_on<Step<adamw>>(unit, static_cast<const T*>(a.value), static_cast<const T*>(a.grad),
                                   static_cast<T*>(a.exp_avg), static_cast<T*>(a.exp_avg_sq),
                                   static_cast<T*>(a.updated != nullptr ? a.updated : a.value), a.count,
                                   rounded<T>(adam_coefficients(numbers)));
}

template <bool adamw>
void check_and_step(const char* name, const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays,
                    collectives::VectorUnit unit) {
  check_step(name, numbers.step, arrays.count, arrays.dtype,
             {arrays.value, arrays.grad, arrays.exp_avg, arrays.exp_avg_sq});
  if (arrays.dtype == DDP_FLOAT32) return step_all<adamw, float>(numbers, arrays, unit);
  step_all<adamw, double>(numbers, arrays, unit);
}

}  // namespace

void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays, collectives::VectorUnit unit) {
  check_and_step<true>("AdamW", numbers, arrays, unit);
}

void adam_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays, collectives::VectorUnit unit) {
  check_and_step<false>("Adam", numbers, arrays, unit);
}

}  // namespace ddp::training
