// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a test contribute to a collective, and the expected result. Small whole numbers are exact in every
// type, and so are their products over four ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ddp/ddp.hpp"

namespace ddp::test {

template <typename T>
std::vector<T> contribution(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 3);
  return values;
}

// Returns element i of the reduction over `size` ranks.
template <typename T>
T reduced(ddp::ReduceOp op, int size, std::size_t i) {
  T result = contribution<T>(0, i + 1)[i];
  for (int rank = 1; rank < size; ++rank) {
    const T x = contribution<T>(rank, i + 1)[i];
    if (op == ddp::ReduceOp::Sum) result = static_cast<T>(result + x);
    if (op == ddp::ReduceOp::Product) result = static_cast<T>(result * x);
    if (op == ddp::ReduceOp::Min) result = std::min(result, x);
    if (op == ddp::ReduceOp::Max) result = std::max(result, x);
  }
  return result;
}

}  // namespace ddp::test
