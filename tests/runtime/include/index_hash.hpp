// SPDX-License-Identifier: BSD-3-Clause
// FNV-1a of indices, one step for each; Python's side of a comparison computes the same.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::test {

constexpr std::uint64_t kEmptyHash = 0xcbf29ce484222325U;

inline std::uint64_t hash(const std::vector<std::int64_t>& indices, std::uint64_t value = kEmptyHash) {
  for (const std::int64_t i : indices) value = (value ^ static_cast<std::uint64_t>(i)) * 0x100000001b3U;
  return value;
}

}  // namespace ddp::test
