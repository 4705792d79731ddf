// SPDX-License-Identifier: BSD-3-Clause
// Reads from /proc what a process does. Needs no right that the owner of a process does not have.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "launcher/diagnosis/hang_core.hpp"

namespace ddp::launcher {

// Returns what a process has done so far; nothing of what cannot be read.
WorkerActivity activity_of(pid_t process);

// Returns the sizes of the files that are a process's stdout and stderr; 0 for a pipe or a terminal.
std::int64_t written_by(pid_t process);

}  // namespace ddp::launcher
