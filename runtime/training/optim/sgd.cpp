// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/optim/sgd.hpp"

#include "runtime/training/optim/optimizer_arrays.hpp"

namespace ddp::runtime {
namespace {

// The loop's coefficients, rounded to the elements' type, as PyTorch does.
template <typename T>
struct Coefficients {
  T sign;
  T weight_decay;
  T momentum;
  T new_share;  // weight of the gradient in the momentum
  T step;

  explicit Coefficients(const ddp_sgd_options& n)
      : sign(n.maximize != 0 ? T(-1) : T(1)),
        weight_decay(static_cast<T>(n.weight_decay)),
        momentum(static_cast<T>(n.momentum)),
        new_share(static_cast<T>(n.step == 1 ? 1 : 1 - n.dampening)),  // momentum starts as the first gradient
        step(static_cast<T>(-n.lr)) {}
};

struct Plain {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* updated, std::size_t count,
                                         Coefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) {
      const T direction = grad[i] * k.sign + k.weight_decay * value[i];
      updated[i] = value[i] + k.step * direction;
    }
  }
};

template <bool nesterov>
struct WithMomentum {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* momentum, T* updated, std::size_t count,
                                         Coefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) {
      T direction = grad[i] * k.sign + k.weight_decay * value[i];
      const T moving = momentum[i] * k.momentum + k.new_share * direction;
      momentum[i] = moving;
      direction = nesterov ? direction + k.momentum * moving : moving;
      updated[i] = value[i] + k.step * direction;
    }
  }
};

template <typename T>
void step_all(const ddp_sgd_options& numbers, const ddp_sgd_arrays& a, collectives::VectorUnit unit) {
  const Coefficients<T> k(numbers);
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
  check_step("SGD", numbers.step);
  check_arrays("SGD", arrays.count, arrays.dtype, {arrays.value, arrays.grad});
  if (numbers.momentum != 0) check_arrays("SGD with momentum", arrays.count, arrays.dtype, {arrays.momentum_buffer});
  if (numbers.nesterov != 0 && (numbers.momentum <= 0 || numbers.dampening != 0)) {
    throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                            "SGD: Nesterov momentum needs a momentum above 0 and no dampening");
  }
  if (arrays.dtype == DDP_FLOAT32) return step_all<float>(numbers, arrays, unit);
  step_all<double>(numbers, arrays, unit);
}

void sgd_step(const ddp_sgd_options& numbers, const ddp_sgd_arrays& arrays) {
  sgd_step(numbers, arrays, collectives::vector_units().back());
}

}  // namespace ddp::runtime
