// SPDX-License-Identifier: BSD-3-Clause
// A table of what exit codes and signals usually mean, in words.
#pragma once

#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns, for example, "segmentation fault: it used memory that is not its own"; empty if the status has no particular
// meaning, as with code 1. `out_of_memory` is the evidence for that, if there is any (oom.hpp).
std::string meaning_of(const rendezvous::ExitStatus& status, const std::string& out_of_memory = "");

}  // namespace ddp::launcher
