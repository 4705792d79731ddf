// SPDX-License-Identifier: BSD-3-Clause
// What to do about the common failures: a table from what a worker said, or how it died, to one line of advice. A hint
// that is wrong costs more than none, so a pattern is what the error itself says, not what a log may mention.
#pragma once

#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Empty if nothing here fits. python: the interpreter that runs the workers; empty: none that ddprun chose.
std::string hint_for(const rendezvous::WorkerFailure& failure, const std::string& python);

}  // namespace ddp::launcher
