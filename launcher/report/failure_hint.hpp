// SPDX-License-Identifier: BSD-3-Clause
// Advice for common failures: a table from what a worker wrote, or how it died, to one line of what to do. A wrong hint
// costs more than none, so a pattern is the text of the error itself, not what a log may mention.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// What is known of a failure beside the worker's own words.
struct Circumstances {
  std::string python{};             // the interpreter that runs the workers; empty: ddprun chose none
  std::string log_error{};          // why files that the worker wrote itself may lack their end; else empty
  std::string gpu_fault{};          // what has happened to the memory of its GPU; else empty
  bool has_stdin = true;            // as in WorkerWords
  std::vector<int> ended_before{};  // ranks of its node that had already exited with 0
};

// Returns the hint; empty if no entry fits.
std::string hint_for(const rendezvous::WorkerFailure& failure, const Circumstances& circumstances);

// Returns whether a worker's message says that it waited in vain.
bool is_timeout(const std::string& message);

}  // namespace ddp::launcher
