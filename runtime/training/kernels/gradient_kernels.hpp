// SPDX-License-Identifier: BSD-3-Clause
// Kernels between backward and the optimizer's step: conversion, unscaling, the scale itself, norms and clipping. They
// compute what ../optim/gradient_math.hpp does on the CPU, but for the order in which norms are summed.
#pragma once

#include <cmath>

#include "runtime/training/kernels/table_loops.hpp"

namespace ddp::runtime::kernels {

// A float's factor is rounded to 32 bits, a double's is not; 16-bit elements are computed with as floats.
inline float as_factor(double factor, float /*like*/) { return static_cast<float>(factor); }
inline double as_factor(double factor, double /*like*/) { return factor; }

// Returns whether a number is finite, without a function that a compiler may leave out.
inline bool finite(float value) { return value - value == 0; }
inline bool finite(double value) { return value - value == 0; }

inline void convert_chunk(const TensorEntry& pair, const Chunk& chunk, const Place& at) {
  with_elements(pair.value, pair.value_type, chunk, [&](const auto& from) {
    with_elements(pair.grad, pair.grad_type, chunk, [&](const auto& to) {
      using T = decltype(to.load(0));
      for (std::uint64_t i = at.thread; i < chunk.count; i += at.threads) to.store(i, static_cast<T>(from.load(i)));
    });
  });
}

inline void convert(const Convert& a, const Place& at) {
  for_each_chunk(a.pairs, at, [&](const TensorEntry& pair, const Chunk& chunk) { convert_chunk(pair, chunk, at); });
}

inline void cast(const Cast& a, const Place& at) {
  for (std::uint64_t first = at.block * kChunkElements; first < a.pair.count; first += at.blocks * kChunkElements) {
    const std::uint64_t left = a.pair.count - first;
    const std::uint32_t count = left < kChunkElements ? static_cast<std::uint32_t>(left) : kChunkElements;
    convert_chunk(a.pair, {first, 0, count}, at);
  }
}

// Multiplies all pairs; calls overflow() where a result is not finite.
template <typename Overflow>
inline void multiply_pairs(const Table& pairs, double factor, const Place& at, const Overflow& overflow) {
  for_each_chunk(pairs, at, [&](const TensorEntry& pair, const Chunk& chunk) {
    with_elements(pair.value, pair.value_type, chunk, [&](const auto& from) {
      with_elements(pair.grad, pair.grad_type, chunk, [&](const auto& to) {
        using T = decltype(to.load(0));
        const T k = as_factor(factor, T());
        for (std::uint64_t i = at.thread; i < chunk.count; i += at.threads) {
          if (!finite(to.store(i, static_cast<T>(from.load(i)) * k))) overflow();
        }
      });
    });
  });
}

inline void multiply(const Multiply& a, const Place& at) {
  multiply_pairs(a.pairs, a.factor, at, [] {});
}

// The scale's inverse is computed in 64 bits, then rounded, as PyTorch does.
inline void unscale(const Unscale& a, const Place& at) {
  ScalerState* scaler = memory(a.scaler, 1);
  const auto inverse = static_cast<float>(1 / static_cast<double>(scaler->scale));
  multiply_pairs(a.pairs, inverse, at, [&] { scaler->found_inf = 1; });  // all that write it write the same
}

inline void set_scaler(const SetScaler& a, const Place& at) {
  if (at.is_first()) *memory(a.at, 1) = a.state;
}

inline void set_scale(ScalerState& s, double scale) {
  const auto rounded_scale = static_cast<float>(scale);
  if (!finite(rounded_scale)) return;
  const float raised = rounded_scale < s.min_scale ? s.min_scale : rounded_scale;
  s.scale = raised > s.max_scale ? s.max_scale : raised;
}

inline void update_scaler(const UpdateScaler& a, const Place& at) {
  if (!at.is_first()) return;
  ScalerState& s = *memory(a.scaler, 1);
  if (s.found_inf != 0) {
    set_scale(s, s.scale * s.backoff_factor);
    s.growth_tracker = 0;
  } else if (++s.growth_tracker == s.growth_interval) {
    set_scale(s, s.scale * s.growth_factor);
    s.growth_tracker = 0;
  }
  s.found_inf = 0;
}

// Adds to a sum of powers, or takes the larger; NaN stays NaN.
inline double combined(double sum, double more, Norm norm) {
  if (norm != Norm::Largest) return sum + more;
  return more <= sum ? sum : (sum != sum ? sum : more);
}

inline double square_of(double value) { return value * value; }
inline double magnitude_of(double value) { return value < 0 ? -value : value; }

// Each thread sums its elements in an order that depends on their places only.
inline void add_powers(const AddPowers& a, const Place& at) {
  double sum = 0;
  for_each_chunk(a.table, at, [&](const TensorEntry& tensor, const Chunk& chunk) {
    with_elements(tensor.grad, tensor.grad_type, chunk, [&](const auto& grad) {
      const auto add = [&](std::uint64_t /*i*/, auto value) {
        sum = combined(sum, a.norm == Norm::Squares ? square_of(value) : magnitude_of(value), a.norm);
      };
      if (a.norm != Norm::Power) return for_each_value(grad, chunk.count, at, add);
      DDP_ROLLED
      for (std::uint64_t i = at.thread; i < chunk.count; i += at.threads) {
        sum += std::pow(magnitude_of(grad.load(i)), a.exponent);
      }
    });
  });
  *memory(a.lanes + at.block * at.threads + at.thread, 1) = sum;
}

// Neighbouring threads read neighbours.
inline void combine(const Combine& a, const Place& at) {
  const std::uint64_t own = at.block * at.threads + at.thread;
  if (own >= a.sums) return;
  const double* from = memory(a.from, kCombined * a.sums);
  double sum = 0;
  DDP_ROLLED
  for (std::uint64_t first = 0; first < kCombined; first += kLoads) {
    double loaded[kLoads];
    for (std::uint64_t k = 0; k < kLoads; ++k) loaded[k] = from[(first + k) * a.sums + own];
    for (std::uint64_t k = 0; k < kLoads; ++k) sum = combined(sum, loaded[k], a.norm);
  }
  *memory(a.to + own, 1) = sum;
}

inline double root_of(double powers, Norm norm, double exponent) {
  if (norm == Norm::Squares) return std::sqrt(powers);
  return norm == Norm::Power ? std::pow(powers, 1 / exponent) : powers;
}

inline void clip_factor(const ClipFactor& a, const Place& at) {
  if (!at.is_first()) return;
  const double* powers = memory(a.powers, a.count);
  double sum = 0;
  DDP_ROLLED
  for (std::uint64_t i = 0; i < a.count; ++i) sum = combined(sum, powers[i], a.norm);
  double* result = memory(a.norm_and_factor, 2);
  result[0] = root_of(sum, a.norm, a.exponent);
  result[1] = a.max_norm / (result[0] + 1e-6);
}

inline void clip(const Clip& a, const Place& at) {
  const double factor = memory(a.norm_and_factor, 2)[1];
  if (factor >= 1) return;
  for_each_chunk(a.table, at, [&](const TensorEntry& tensor, const Chunk& chunk) {
    with_elements(tensor.grad, tensor.grad_type, chunk, [&](const auto& grad) {
      const auto k = as_factor(factor, grad.load(0));
      for_each_value(grad, chunk.count, at, [&](std::uint64_t i, auto value) { grad.store(i, value * k); });
    });
  });
}

}  // namespace ddp::runtime::kernels
