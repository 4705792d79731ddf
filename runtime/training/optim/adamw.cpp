// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/optim/adamw.hpp"

#include "runtime/training/optim/adam_math.hpp"
#include "runtime/training/optim/optimizer_arrays.hpp"

namespace ddp::runtime {
namespace {

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
                                   rounded<T>(adam_coefficients(numbers_of(numbers), numbers.step)));
}

template <bool adamw>
void check_and_step(const char* name, const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays,
                    collectives::VectorUnit unit) {
  check_step(name, numbers.step);
  check_arrays(name, arrays.count, arrays.dtype, {arrays.value, arrays.grad, arrays.exp_avg, arrays.exp_avg_sq});
  if (arrays.dtype == DDP_FLOAT32) return step_all<adamw, float>(numbers, arrays, unit);
  step_all<adamw, double>(numbers, arrays, unit);
}

}  // namespace

AdamNumbers numbers_of(const ddp_adamw_options& n) {
  return {n.lr, n.beta1, n.beta2, n.eps, n.weight_decay, n.maximize != 0 ? 1.0 : 0.0};
}

void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays, collectives::VectorUnit unit) {
  check_and_step<true>("AdamW", numbers, arrays, unit);
}

void adam_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays, collectives::VectorUnit unit) {
  check_and_step<false>("Adam", numbers, arrays, unit);
}

void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays) {
  adamw_step(numbers, arrays, collectives::vector_units().back());
}

void adam_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays) {
  adam_step(numbers, arrays, collectives::vector_units().back());
}

}  // namespace ddp::runtime
