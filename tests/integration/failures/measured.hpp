// SPDX-License-Identifier: BSD-3-Clause
// Prints figures for a note. Tests fail only by their checks.
#pragma once

#include <chrono>
#include <iostream>
#include <string>

namespace ddp::testing {

using Clock = std::chrono::steady_clock;

inline void measured(const std::string& what, Clock::duration time) {
  std::cout << "measured: " << what << ": " << std::chrono::duration<double, std::milli>(time).count() << " ms\n";
}

}  // namespace ddp::testing
