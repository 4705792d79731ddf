// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/optim/sgd.hpp"

#include "runtime/training/optim/optimizer_arrays.hpp"
#include "runtime/training/optim/sgd_math.hpp"

namespace ddp::runtime {
namespace {

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
  const SgdCoefficients<T> k = rounded<T>(sgd_coefficients(numbers_of(numbers), numbers.step));
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

SgdNumbers numbers_of(const ddp_sgd_options& n) {
  if (n.nesterov != 0 && (n.momentum <= 0 || n.dampening != 0)) {
    throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                            "SGD: Nesterov momentum needs a momentum above 0 and no dampening");
  }
  return {n.lr, n.momentum, n.dampening, n.weight_decay, n.nesterov != 0 ? 1.0 : 0.0, n.maximize != 0 ? 1.0 : 0.0};
}

void sgd_step(const ddp_sgd_options& numbers, const ddp_sgd_arrays& arrays, collectives::VectorUnit unit) {
  check_step("SGD", numbers.step);
  check_arrays("SGD", arrays.count, arrays.dtype, {arrays.value, arrays.grad});
  if (numbers.momentum != 0) check_arrays("SGD with momentum", arrays.count, arrays.dtype, {arrays.momentum_buffer});
  if (arrays.dtype == DDP_FLOAT32) return step_all<float>(numbers, arrays, unit);
  step_all<double>(numbers, arrays, unit);
}

void sgd_step(const ddp_sgd_options& numbers, const ddp_sgd_arrays& arrays) {
  sgd_step(numbers, arrays, collectives::vector_units().back());
}

}  // namespace ddp::runtime
