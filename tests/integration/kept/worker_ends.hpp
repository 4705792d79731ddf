// SPDX-License-Identifier: BSD-3-Clause
// What workers of tests/fixtures/kept_worker.cpp and interop/kept_memory/trainer.py print at their ends.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/integration/ddprun.hpp"

namespace ddp::testing {

// Returns the lines in which ranks say what they have at the end, in their order.
inline Words ends_of(const std::string& out) {
  Words ends;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" ends with ") != std::string::npos) ends.push_back(line);
  }
  std::sort(ends.begin(), ends.end());
  return ends;
}

}  // namespace ddp::testing
