// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

namespace ddp::bench {

// Prints one JSON object on a line of its own, at once, so that a script sees how far a long run has come.
inline void print(const nlohmann::ordered_json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace ddp::bench
