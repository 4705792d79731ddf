// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of Adam and AdamW for one element: the same functions in the CPU's loops (adamw.cpp) and in the GPU's
// kernels (../kernels), so that both give the same bits. It includes only what ../kernels/standard has.
#pragma once

#include <cmath>
#include <cstdint>

namespace ddp::runtime {

// The numbers of a group of parameters; see ddp_adamw_options.
struct AdamNumbers {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double maximize = 0;  // 1: the step goes up
};

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

inline AdamCoefficients<double> adam_coefficients(const AdamNumbers& n, std::int64_t step) {
  const auto steps = static_cast<double>(step);
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
inline AdamCoefficients<T> rounded(const AdamCoefficients<double>& k) {
  return {static_cast<T>(k.sign),       static_cast<T>(k.keep),        static_cast<T>(k.decay),
          static_cast<T>(k.new_share),  static_cast<T>(k.keep_square), static_cast<T>(k.new_square),
          static_cast<T>(k.correction), static_cast<T>(k.eps),         static_cast<T>(k.step)};
}

// Steps one element; returns its new value. What decays is AdamW's value, or Adam's gradient towards it.
template <bool adamw, typename T>
__attribute__((always_inline)) inline T adam_element(T value, T grad, T& mean, T& square,
                                                     const AdamCoefficients<T>& k) {
  const T g = adamw ? grad * k.sign : grad * k.sign + k.decay * value;
  const T m = mean + k.new_share * (g - mean);
  const T s = square * k.keep_square + k.new_square * g * g;
  mean = m;
  square = s;
  const T kept = adamw ? value * k.keep : value;
  return kept + k.step * m / (std::sqrt(s) / k.correction + k.eps);
}

}  // namespace ddp::runtime
