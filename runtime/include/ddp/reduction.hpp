// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Reductions: how the contributions of several ranks are combined.
#pragma once

#include <cstdint>

#include "ddp/ddp.h"

namespace ddp {

/// How contributions are combined.
enum class ReduceOp : std::int32_t {
  Sum = DDP_SUM,              ///< integers wrap
  Avg = DDP_AVG,              ///< each contribution times 1/N, then summed; floating point only
  Product = DDP_PRODUCT,      ///< integers wrap
  Min = DDP_MIN,              ///< the smallest; NaN if any rank has NaN; "nccl" ignores NaN
  Max = DDP_MAX,              ///< the largest; NaN if any rank has NaN; "nccl" ignores NaN
  BitAnd = DDP_BAND,          ///< bitwise and; integers only
  BitOr = DDP_BOR,            ///< bitwise or; integers only
  BitXor = DDP_BXOR,          ///< bitwise exclusive or; integers only
  PremulSum = DDP_PREMUL_SUM  ///< each contribution times its rank's factor, then summed; made by premul_sum()
};

/// A reduction: an operation, and for ReduceOp::PremulSum a factor.
struct Reduction {
  ReduceOp op = ReduceOp::Sum;  ///< equal on all ranks
  double factor = 1;            ///< this rank's factor for ReduceOp::PremulSum; unused otherwise

  /// Makes a sum.
  Reduction() = default;
  /// Makes a reduction of any operation; a ReduceOp may be given wherever a Reduction is expected.
  Reduction(ReduceOp op_) : op(op_) {}  // NOLINT: an operation is a reduction
  /// Makes a reduction with a factor, as premul_sum() does.
  Reduction(ReduceOp op_, double factor_) : op(op_), factor(factor_) {}
  /// Returns the struct of ddp.h.
  ddp_reduction c() const { return {static_cast<std::int32_t>(op), factor}; }
};

/// Returns the reduction that sums each rank's contribution times that rank's factor; floating point only.
inline Reduction premul_sum(double factor) { return {ReduceOp::PremulSum, factor}; }

}  // namespace ddp
