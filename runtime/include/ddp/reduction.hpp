// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What becomes of the contributions of several ranks.
#pragma once

#include <cstdint>

#include "ddp/ddp.h"

namespace ddp {

/// How contributions become one.
enum class ReduceOp : std::int32_t {
  Sum = DDP_SUM,              ///< integers wrap
  Avg = DDP_AVG,              ///< each contribution times 1/N, then summed; floating point only
  Product = DDP_PRODUCT,      ///< integers wrap
  Min = DDP_MIN,              ///< the smallest
  Max = DDP_MAX,              ///< the largest
  BitAnd = DDP_BAND,          ///< bitwise; integers only
  BitOr = DDP_BOR,            ///< likewise
  BitXor = DDP_BXOR,          ///< likewise
  PremulSum = DDP_PREMUL_SUM  ///< see premul_sum()
};

/// What becomes of the contributions: an operation, and for one of them a factor.
struct Reduction {
  ReduceOp op = ReduceOp::Sum;  ///< all ranks give the same
  double factor = 1;            ///< this rank's, for ReduceOp::PremulSum; else unused

  /// A sum.
  Reduction() = default;
  /// Any other operation; a ReduceOp may be given wherever a Reduction is asked for.
  Reduction(ReduceOp op_) : op(op_) {}  // NOLINT: an operation is a reduction
  /// See premul_sum().
  Reduction(ReduceOp op_, double factor_) : op(op_), factor(factor_) {}
  /// For ddp.h.
  ddp_reduction c() const { return {static_cast<std::int32_t>(op), factor}; }
};

/// This rank's contribution times factor, summed with the others' times theirs; floating point only.
inline Reduction premul_sum(double factor) { return {ReduceOp::PremulSum, factor}; }

}  // namespace ddp
