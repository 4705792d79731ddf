// SPDX-License-Identifier: BSD-3-Clause
// Kernels of Adam, AdamW and SGD over all tensors at once. A step is two kernels: the first, of one thread, decides
// whether the step is taken, counts it and computes the coefficients of each group; the second steps the elements.
#pragma once

#include "runtime/training/kernels/table_loops.hpp"

namespace ddp::runtime::kernels {

inline void set_adam_numbers(const SetAdamNumbers& a, const Place& at) {
  if (at.is_first()) *memory(a.at, 1) = a.numbers;
}

inline void set_sgd_numbers(const SetSgdNumbers& a, const Place& at) {
  if (at.is_first()) *memory(a.at, 1) = a.numbers;
}

inline void set_steps(const SetSteps& a, const Place& at) {
  if (at.is_first()) *memory(a.control, 1) = {a.steps, 0};
}

// Counts the step unless an overflow was found. Returns the step's number, or 0.
inline std::int64_t count_step(StepControl* control, const ScalerState* scaler) {
  StepControl& state = *memory(control, 1);
  state.skip = scaler != nullptr && memory(scaler, 1)->found_inf != 0 ? 1 : 0;
  return state.skip != 0 ? 0 : ++state.steps;
}

inline void begin_adam(const BeginAdam& a, const Place& at) {
  if (!at.is_first()) return;
  const std::int64_t step = count_step(a.control, a.scaler);
  if (step == 0) return;
  DDP_ROLLED
  for (std::uint64_t g = 0; g < a.groups; ++g) {
    *memory(a.coefficients + g, 1) = adam_coefficients(*memory(a.numbers + g, 1), step);
  }
}

inline void begin_sgd(const BeginSgd& a, const Place& at) {
  if (!at.is_first()) return;
  const std::int64_t step = count_step(a.control, a.scaler);
  if (step == 0) return;
  DDP_ROLLED
  for (std::uint64_t g = 0; g < a.groups; ++g) {
    *memory(a.coefficients + g, 1) = sgd_coefficients(*memory(a.numbers + g, 1), step);
  }
}

template <bool adamw, typename T>
inline void step_adam_chunk(const TensorEntry& tensor, const Chunk& chunk, const AdamCoefficients<double>& wide,
                            const Place& at) {
  const AdamCoefficients<T> k = rounded<T>(wide);
  T* value = part_of<T>(tensor.value, chunk);
  const T* grad = part_of<T>(tensor.grad, chunk);
  T* mean = part_of<T>(tensor.states[0], chunk);
  T* square = part_of<T>(tensor.states[1], chunk);
  for (std::uint64_t i = at.thread; i < chunk.count; i += at.threads) {
    value[i] = adam_element<adamw>(value[i], grad[i], mean[i], square[i], k);
  }
}

template <bool adamw>
inline void step_adam_like(const StepAdam& a, const Place& at) {
  if (memory(a.control, 1)->skip != 0) return;
  for_each_chunk(a.table, at, [&](const TensorEntry& tensor, const Chunk& chunk) {
    const AdamCoefficients<double>& k = *memory(a.coefficients + tensor.group, 1);
    if (tensor.value_type == Type::Float32) return step_adam_chunk<adamw, float>(tensor, chunk, k, at);
    step_adam_chunk<adamw, double>(tensor, chunk, k, at);
  });
}

inline void step_adam(const StepAdam& a, const Place& at) { step_adam_like<false>(a, at); }
inline void step_adamw(const StepAdam& a, const Place& at) { step_adam_like<true>(a, at); }

template <typename T>
inline void step_sgd_chunk(const TensorEntry& tensor, const Chunk& chunk, const SgdCoefficients<double>& wide,
                           const Place& at) {
  const SgdCoefficients<T> k = rounded<T>(wide);
  T* value = part_of<T>(tensor.value, chunk);
  const T* grad = part_of<T>(tensor.grad, chunk);
  T* momentum = tensor.states[0] != nullptr ? part_of<T>(tensor.states[0], chunk) : nullptr;
  for (std::uint64_t i = at.thread; i < chunk.count; i += at.threads) {
    if (k.momentum == 0) {
      value[i] = sgd_element(value[i], grad[i], k);
    } else if (k.nesterov != 0) {
      value[i] = momentum_element<true>(value[i], grad[i], momentum[i], k);
    } else {
      value[i] = momentum_element<false>(value[i], grad[i], momentum[i], k);
    }
  }
}

inline void step_sgd(const StepSgd& a, const Place& at) {
  if (memory(a.control, 1)->skip != 0) return;
  for_each_chunk(a.table, at, [&](const TensorEntry& tensor, const Chunk& chunk) {
    const SgdCoefficients<double>& k = *memory(a.coefficients + tensor.group, 1);
    if (tensor.value_type == Type::Float32) return step_sgd_chunk<float>(tensor, chunk, k, at);
    step_sgd_chunk<double>(tensor, chunk, k, at);
  });
}

}  // namespace ddp::runtime::kernels
