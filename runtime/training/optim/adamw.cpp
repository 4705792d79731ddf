// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/optim/adamw.hpp"

#include <cmath>

#include "runtime/training/optim/optimizer_arrays.hpp"

namespace ddp::runtime {
namespace {

// The loop's coefficients, computed once in 64 bits and then rounded to the elements' type, as
// PyTorch does.
template <typename T>
struct Coefficients {
  T sign;
  T keep;         // AdamW: factor of the value, from weight decay
  T decay;        // Adam: factor of the value that is added to the gradient
  T new_share;    // weight of the gradient in its running mean
  T keep_square;  // factor of the running mean of squares
  T new_square;
  T correction;  // divisor of the square root: the running mean began at 0
  T eps;
  T step;

  explicit Coefficients(const ddp_adamw_options& n)
      : sign(n.maximize != 0 ? T(-1) : T(1)),
        keep(static_cast<T>(1 - n.lr * n.weight_decay)),
        decay(static_cast<T>(n.weight_decay)),
        new_share(static_cast<T>(1 - n.beta1)),
        keep_square(static_cast<T>(n.beta2)),
        new_square(static_cast<T>(1 - n.beta2)),
        correction(static_cast<T>(std::sqrt(1 - std::pow(n.beta2, static_cast<double>(n.step))))),
        eps(static_cast<T>(n.eps)),
        step(static_cast<T>(-(n.lr / (1 - std::pow(n.beta1, static_cast<double>(n.step)))))) {}
};

template <bool adamw>
struct Step {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* value, const T* grad, T* mean, T* square, T* updated,
                                         std::size_t count, Coefficients<T> k) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) {
      const T g = adamw ? grad[i] * k.sign : grad[i] * k.sign + k.decay * value[i];
      const T m = mean[i] + k.new_share * (g - mean[i]);
      const T s = square[i] * k.keep_square + k.new_square * g * g;
      mean[i] = m;
      square[i] = s;
      const T kept = adamw ? value[i] * k.keep : value[i];
      updated[i] = kept + k.step * m / (std::sqrt(s) / k.correction + k.eps);
    }
  }
};

template <bool adamw, typename T>
void step_all(const ddp_adamw_options& numbers, const ddp_adamw_arrays& a, collectives::VectorUnit unit) {
  collectives::run_on<Step<adamw>>(unit, static_cast<const T*>(a.value), static_cast<const T*>(a.grad),
                                   static_cast<T*>(a.exp_avg), static_cast<T*>(a.exp_avg_sq),
                                   static_cast<T*>(a.updated != nullptr ? a.updated : a.value), a.count,
                                   Coefficients<T>(numbers));
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
