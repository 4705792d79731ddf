// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/slices.hpp"

#include <algorithm>
#include <numeric>

namespace ddp::collectives {

Slice slice_of(std::size_t count, std::size_t element, std::uint32_t rank, std::uint32_t ranks) {
  const std::size_t line = std::max<std::size_t>(kLine / element, 1);
  const std::size_t each = (count / ranks + line) / line * line;
  const std::size_t begin = std::min(count, each * rank);
  return {begin, std::min(count, begin + each)};
}

std::size_t even_chunk(std::size_t count, std::size_t most) {
  const std::size_t chunks = (count + most - 1) / most;
  return (count + chunks - 1) / chunks;
}

void set_begins(std::vector<std::size_t>& begins, const std::vector<std::size_t>& bytes) {
  begins.resize(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), begins.begin(), std::size_t{0});
}

}  // namespace ddp::collectives
