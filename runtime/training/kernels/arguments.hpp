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

// ---- PowerSGD (low_rank_kernels.hpp) ----

constexpr std::uint32_t kRowBlocks = 64;     // blocks for each matrix where all of it is gone over
constexpr std::uint32_t kProductParts = 16;  // partial sums of an element of a product

// One gradient M of rows x cols, and its thin matrices P of rows x columns and Q of cols x columns. The numbers are
// offsets in elements.
struct LowRankMatrix {
  std::uint64_t rows;
  std::uint64_t cols;
  std::uint64_t columns;
  std::uint64_t gradient;
  std::uint64_t p;
  std::uint64_t q;
  std::uint64_t error;
  std::uint64_t random[2];  // the state of the generator, in turns
  double length_before;     // the column's length before others are taken away from it
  std::int64_t overflow;    // 1: Q has an element that is not finite; until Q is measured again
};

struct LowRank {
  LowRankMatrix* matrices;
  std::uint64_t count;
  void* gradients;
  void* p;
  void* q;
  void* error;    // null: no error feedback
  void* parts;    // kProductParts for each element of P or of Q
  double* lanes;  // kThreads for each column and matrix
  std::uint64_t max_columns;
  std::uint64_t column;  // for kernels of one column
  std::uint64_t turn;    // 0 or 1: which state of the generator low_rank_fill reads; 0: low_rank_subtract runs first
  Type type;             // Float32 or Float64
  std::int32_t of_p;     // 1: P is meant, 0: Q
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
  X(clip, Clip)                       \
  X(low_rank_add_error, LowRank)      \
  X(low_rank_multiply, LowRank)       \
  X(low_rank_combine, LowRank)        \
  X(low_rank_measure, LowRank)        \
  X(low_rank_fill, LowRank)           \
  X(low_rank_subtract, LowRank)       \
  X(low_rank_finish, LowRank)         \
  X(low_rank_check, LowRank)          \
  X(low_rank_expand, LowRank)         \
  X(low_rank_drop, LowRank)
