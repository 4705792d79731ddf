// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/optim/sgd.hpp"

#include "runtime/training_kit/checks.hpp"

namespace ddp::training {
namespace {

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

SgdCoefficients<double> sgd_coefficients(const ddp_sgd_options& n) {
  return {n.maximize != 0 ? -1.0 : 1.0,
          n.weight_decay,
          n.momentum,
          n.step == 1 ? 1.0 : 1 - n.dampening,  // momentum starts as the first gradient
          -n.lr,
          n.nesterov != 0 ? 1.0 : 0.0};
}

template <typename T>
SgdCoefficients<T> rounded(const SgdCoefficients<double>& k) {
  return {static_cast<T>(k.sign),      static_cast<T>(k.weight_decay), static_cast<T>(k.momentum),
          static_cast<T>(k.new_share), static_cast<T>(k.step),         static_cast<T>(k.nesterov)};
}

// Both step one element and return its new value.
template <typename T>
[[gnu::always_inline]] inline T sgd_element(T value, T grad, const SgdCoefficients<T>& k) {
  const T direction = grad * k.sign + k.weight_decay * value;
  return value + k.step * direction;
}

template <bool nesterov, typename T>
[[gnu::always_inline]] inline T momentum_element(T value, T grad, T& momentum, const SgdCoefficients<T>& k) {
  T direction = grad * k.sign + k.weight_decay * value;
  const T moving = momentum * k.momentum + k.new_share * direction;
  momentum = moving;
  direction = nesterov ? direction + k.momentum * moving : moving;
  return value + k.step * direction;
}

struct Plain {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* updated, std::size_t count,
                                         SgdCoefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) updated[i] = sgd_element(value[i], grad[i], k);
  }
};

template <bool nesterov>
struct WithMomentum {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* momentum, T* updated, std::size_t count,
                                         SgdCoefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) {
      updated[i] = momentum_element<nesterov>(value[i], grad[i], momentum[i], k);
    }
  }
};

template <typename T>
void step_all(const ddp_sgd_options& numbers, const ddp_sgd_arrays& a, collectives::VectorUnit unit) {
  const SgdCoefficients<T> k = rounded<T>(sgd_coefficients(numbers));
  const auto* value = static_cast<const T*>(a.value);
  const auto* grad = static_cast<const T*>(a.grad);
  auto* momentum = static_cast<T*>(a.momentum_buffer);
  auto* updated = static_cast<T*>(a.updated != nullptr ? a.updated : a.value);
  if (numbers.momentum == 0) return collectives::run_on<Plain>(unit, value, grad, updated, a.count, k);
  if (numbers.nesterov != 0) {
    return collectives::run_on<WithMomentum<true>>(unit, value, grad, momentum, updated, a.count, k);
  }
  collectives::run_on<WithMomentum<false>>(unit, value, grad, momentum, updated, a.count, k);
}

}  // namespace

void sgd_step(const ddp_sgd_options& numbers, const ddp_sgd_arrays& arrays, collectives::VectorUnit unit) {
  check_step("SGD", numbers.step, arrays.count, arrays.dtype, {arrays.value, arrays.grad});
  if (numbers.momentum != 0 && arrays.momentum_buffer == nullptr && arrays.count > 0) {
    refuse("SGD with momentum: an array is null");
  }
  if (numbers.nesterov != 0 && (numbers.momentum <= 0 || numbers.dampening != 0)) {
    refuse("SGD: Nesterov momentum needs a momentum above 0 and no dampening");
  }
  if (arrays.dtype == DDP_FLOAT32) return step_all<float>(numbers, arrays, unit);
  step_all<double>(numbers, arrays, unit);
}

}  // namespace ddp::training
