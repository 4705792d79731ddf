// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ddp::collectives {

// Where a rank is in the calls of its group, between two of them. Its values mean nothing outside this folder.
struct Position {
  std::uint64_t call = 0;  // Steps::call()
  std::uint64_t chunks = 0;
  std::uint64_t window = 1;  // kFirstWindow
};

}  // namespace ddp::collectives
