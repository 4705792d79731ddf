// SPDX-License-Identifier: BSD-3-Clause
// What the host gives the kernels: structs of one layout on both sides, and the list of all kernels. Pointers are to
// device memory. It includes only what standard/ has.
#pragma once

#include <cstdint>

#include "runtime/training/optim/adam_math.hpp"
#include "runtime/training/optim/norm.hpp"
#include "runtime/training/optim/sgd_math.hpp"

namespace ddp::runtime::kernels {

constexpr std::uint32_t kThreads = 256;                   // threads of a block
constexpr std::uint32_t kChunkElements = 16384;           // what a block does at a time
constexpr std::uint32_t kNormBlocks = 1024;               // fixed, so that the order of additions is
constexpr std::uint32_t kLanes = kNormBlocks * kThreads;  // partial sums of a norm
constexpr std::uint32_t kCombined = 64;                   // partial sums that one thread combines
static_assert(kLanes == kCombined * kCombined * kCombined);

// Numbers of ddp_dtype; others have no kernel.
enum class Type : std::int32_t { Float32 = 0, Float64 = 1, Float16 = 10, BFloat16 = 11 };

// One tensor, and what belongs to it element by element. In a list of pairs, `value` is what is read and `grad` what is
// written.
struct TensorEntry {
  void* value;
  void* grad;
  void* states[2];
  std::uint64_t count;
  Type value_type;
  Type grad_type;
  std::int32_t group;
  std::int32_t unused;
};

// A part of a tensor for one block.
struct Chunk {
  std::uint64_t first;
  std::uint32_t tensor;
  std::uint32_t count;
};

struct Table {
  const TensorEntry* tensors;
  const Chunk* chunks;
  std::uint64_t chunk_count;
};

// State of an optimizer that is on the device because only the device knows whether a step is taken.
struct StepControl {
  std::int64_t steps;
  std::int64_t skip;  // 1: this step is left out
};

struct ScalerState {
  double growth_factor;
  double backoff_factor;
  float scale;
  float found_inf;  // 1: an element was infinite or not a number
  float min_scale;
  float max_scale;
  std::int32_t growth_interval;
  std::int32_t growth_tracker;
};

struct SetAdamNumbers {
  AdamNumbers* at;
  AdamNumbers numbers;
};
struct SetSgdNumbers {
  SgdNumbers* at;
  SgdNumbers numbers;
};
struct SetSteps {
  StepControl* control;
  std::int64_t steps;
};
struct BeginAdam {
  StepControl* control;
  const AdamNumbers* numbers;  // by group
  AdamCoefficients<double>* coefficients;
  std::uint64_t groups;
  const ScalerState* scaler;  // may be null
};
struct BeginSgd {
  StepControl* control;
  const SgdNumbers* numbers;
  SgdCoefficients<double>* coefficients;
  std::uint64_t groups;
  const ScalerState* scaler;
};
struct StepAdam {
  Table table;
  const StepControl* control;
  const AdamCoefficients<double>* coefficients;
};
struct StepSgd {
  Table table;
  const StepControl* control;
  const SgdCoefficients<double>* coefficients;
};
struct Convert {
  Table pairs;
};
struct Cast {
  TensorEntry pair;  // one pair, given by value: no list of it is in device memory
};
struct Multiply {
  Table pairs;
  double factor;
};
struct Unscale {
  Table pairs;
  ScalerState* scaler;
};
struct SetScaler {
  ScalerState* at;
  ScalerState state;
};
struct UpdateScaler {
  ScalerState* scaler;
};
struct AddPowers {
  Table table;  // its gradients count
  double* lanes;
  double exponent;
  Norm norm;
};
// Combines kCombined times as many partial sums into `sums` sums.
struct Combine {
  const double* from;
  double* to;
  std::uint64_t sums;
  Norm norm;
};
struct ClipFactor {
  const double* powers;  // one sum for each rank's share
  std::uint64_t count;
  double* norm_and_factor;
  double max_norm;
  double exponent;
  Norm norm;
};
struct Clip {
  Table table;
  const double* norm_and_factor;
};

}  // namespace ddp::runtime::kernels

// All kernels: X(name, arguments).
#define DDP_TRAINING_KERNELS(X)       \
  X(set_adam_numbers, SetAdamNumbers) \
  X(set_sgd_numbers, SetSgdNumbers)   \
  X(set_steps, SetSteps)              \
  X(begin_adam, BeginAdam)            \
  X(begin_sgd, BeginSgd)              \
  X(step_adam, StepAdam)              \
  X(step_adamw, StepAdam)             \
  X(step_sgd, StepSgd)                \
  X(convert, Convert)                 \
  X(cast, Cast)                       \
  X(multiply, Multiply)               \
  X(unscale, Unscale)                 \
  X(set_scaler, SetScaler)            \
  X(update_scaler, UpdateScaler)      \
  X(add_powers, AddPowers)            \
  X(combine, Combine)                 \
  X(clip_factor, ClipFactor)          \
  X(clip, Clip)
