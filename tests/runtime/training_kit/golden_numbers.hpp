// SPDX-License-Identifier: BSD-3-Clause
// Numbers that golden/make_optimizers.py computes as well, and PyTorch's results for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace ddp::test {

// Returns numbers spread over [-2, 2) that are exact in every floating-point type.
template <typename T>
std::vector<T> numbers(std::size_t step, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = (static_cast<T>((step * 131 + i * 197) % 255) - 127) / 64;
  }
  return result;
}

// Writes such numbers to existing memory.
template <typename T>
void write_numbers(std::size_t step, std::vector<T>& to) {
  const std::vector<T> from = numbers<T>(step, to.size());
  std::copy(from.begin(), from.end(), to.begin());
}

inline nlohmann::json golden_optimizers() {
  std::ifstream file(GOLDEN_FOLDER "/optimizers.json");
  return nlohmann::json::parse(file);
}

}  // namespace ddp::test
