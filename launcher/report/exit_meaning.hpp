// SPDX-License-Identifier: BSD-3-Clause
// What an exit code or a signal usually means, in words. A plain table.
#pragma once

#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// "segmentation fault: it used memory that is not its own"; empty if it means nothing in particular, as code 1 does.
// out_of_memory: what is known of that, see oom.hpp.
std::string meaning_of(const rendezvous::ExitStatus& status, const std::string& out_of_memory = "");

}  // namespace ddp::launcher
