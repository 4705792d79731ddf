// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of stochastic gradient descent for one element: the same functions in the CPU's loops (sgd.cpp) and in
// the GPU's kernels (../kernels), so that both give the same bits. It includes only what ../kernels/standard has.
#pragma once

#include <cstdint>

namespace ddp::runtime {

// The numbers of a group of parameters; see ddp_sgd_options.
struct SgdNumbers {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  double nesterov = 0;  // 1: Nesterov's momentum
  double maximize = 0;  // 1: the step goes up
};

// The loop's coefficients, rounded to the elements' type, as PyTorch does.
template <typename T>
struct SgdCoefficients {
  T sign;
  T weight_decay;
  T momentum;
  T new_share;  // weight of the gradient in the momentum
  T step;
  T nesterov;  // not 0: Nesterov's momentum
};

inline SgdCoefficients<double> sgd_coefficients(const SgdNumbers& n, std::int64_t step) {
  return {n.maximize != 0 ? -1.0 : 1.0,
          n.weight_decay,
          n.momentum,
          step == 1 ? 1.0 : 1 - n.dampening,  // momentum starts as the first gradient
          -n.lr,
          n.nesterov};
}

template <typename T>
inline SgdCoefficients<T> rounded(const SgdCoefficients<double>& k) {
  return {static_cast<T>(k.sign),      static_cast<T>(k.weight_decay), static_cast<T>(k.momentum),
          static_cast<T>(k.new_share), static_cast<T>(k.step),         static_cast<T>(k.nesterov)};
}

// Both step one element and return its new value.
template <typename T>
__attribute__((always_inline)) inline T sgd_element(T value, T grad, const SgdCoefficients<T>& k) {
  const T direction = grad * k.sign + k.weight_decay * value;
  return value + k.step * direction;
}

template <bool nesterov, typename T>
__attribute__((always_inline)) inline T momentum_element(T value, T grad, T& momentum, const SgdCoefficients<T>& k) {
  T direction = grad * k.sign + k.weight_decay * value;
  const T moving = momentum * k.momentum + k.new_share * direction;
  momentum = moving;
  direction = nesterov ? direction + k.momentum * moving : moving;
  return value + k.step * direction;
}

}  // namespace ddp::runtime
