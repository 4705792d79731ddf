// SPDX-License-Identifier: BSD-3-Clause
// How tests start programs of PyTorch. They need DDPRUN_TEST_PYTHON at run time, else they are skipped.
#pragma once

#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/integration/ddprun.hpp"

namespace ddp::testing {

// Enough for four Pythons that import PyTorch at once on a busy machine.
inline constexpr std::chrono::seconds kPatience{240};

inline Process::Options with_torch() {
  const char* python = getenv("DDPRUN_TEST_PYTHON");
  if (!python || !*python) skip("DDPRUN_TEST_PYTHON is not set (scripts/test sets it up)");
  Process::Options options;
  options.environment = {{"PYTHON_EXEC", python}};
  options.deadline = kPatience;
  return options;
}

// Options of a process that finds the package ddprun and libddp.
inline Process::Options with_package() {
  Process::Options options = with_torch();
  const std::string binary = DDPRUN_BINARY;
  options.environment["PYTHONPATH"] = PYTHON_PACKAGES;
  options.environment["PATH"] = binary.substr(0, binary.rfind('/')) + ":" + getenv("PATH");
  options.environment["OMP_NUM_THREADS"] = "1";
  return options;
}

}  // namespace ddp::testing
