// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/operation.hpp"

#include <numeric>

#include "runtime/base/buffer.hpp"

namespace ddp::runtime {

std::size_t Operation::bytes() const {
  const std::size_t given = std::accumulate(input_counts.begin(), input_counts.end(), count * parts);
  return given * dtype_size(dtype);
}

}  // namespace ddp::runtime
