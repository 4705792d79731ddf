// SPDX-License-Identifier: BSD-3-Clause
// The reductions of collectives and their names. The values equal ddp_reduce_op's (ddp/ddp.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::collectives {

enum class ReduceOp : std::int32_t {
  Sum = 0,
  Average = 1,
  Product = 2,
  Min = 3,
  Max = 4,
  And = 5,
  Or = 6,
  ExclusiveOr = 7,
  WeightedSum = 8,
};

inline constexpr std::array<const char*, 9> kReduceOpNames = {"sum", "average", "product", "min",         "max",
                                                              "and", "or",      "xor",     "weighted sum"};

// Returns the reduction with this value, or nothing if there is none.
inline std::optional<ReduceOp> to_reduce_op(std::int32_t value) {
  const bool known = value >= 0 && static_cast<std::size_t>(value) < kReduceOpNames.size();
  return known ? std::optional(static_cast<ReduceOp>(value)) : std::nullopt;
}

// Safe in a signal handler.
inline const char* reduce_op_name(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }

inline bool is_bitwise(ReduceOp op) { return op == ReduceOp::And || op == ReduceOp::Or || op == ReduceOp::ExclusiveOr; }

}  // namespace ddp::collectives
