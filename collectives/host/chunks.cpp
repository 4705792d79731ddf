// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/chunks.hpp"

#include <algorithm>

namespace ddp::collectives {

Slice slice_of(std::size_t count, std::size_t element, std::uint32_t number, std::uint32_t slices) {
  const std::size_t line = std::max<std::size_t>(kLine / element, 1);
  const std::size_t each = (count / slices + line) / line * line;
  const std::size_t begin = std::min(count, each * number);
  return {begin, std::min(count, begin + each)};
}

}  // namespace ddp::collectives
