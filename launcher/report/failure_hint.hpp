// SPDX-License-Identifier: BSD-3-Clause
// Advice for common failures: a table from what a worker wrote, or how it died, to one line of what to do. A wrong hint
// costs more than none, so a pattern is the text of the error itself, not what a log may mention.
#pragma once

#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns the hint; empty if no entry fits. `python` is the interpreter that runs the workers; empty if ddprun chose
// none. `log_error` is the reason why files that the worker wrote itself may lack their end, and `gpu_fault` what has
// happened to the memory of its GPU; empty if there is none.
std::string hint_for(const rendezvous::WorkerFailure& failure, const std::string& python,
                     const std::string& log_error = "", const std::string& gpu_fault = "");

// Returns whether a worker's message says that it waited in vain.
bool is_timeout(const std::string& message);

}  // namespace ddp::launcher
