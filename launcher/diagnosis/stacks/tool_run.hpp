// SPDX-License-Identifier: BSD-3-Clause
// Runs programs side by side until a deadline, and keeps what they print.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp::launcher {

struct ToolRun {
  std::vector<std::string> command;  // the first word is a path
  std::string out = {};
  std::string err = {};
  std::string why_not = {};  // empty if it ended by itself; else that it could not start, or was killed at the deadline
};

// Blocks until all have ended; at the deadline the rest are killed and reaped.
void run_tools(std::vector<ToolRun>& runs, std::chrono::steady_clock::time_point deadline);

}  // namespace ddp::launcher
