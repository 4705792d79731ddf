// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::rendezvous {

// Returns the folder of a process in /proc. Where /proc shows the pids of another namespace (a container with pids of
// its own and the machine's /proc), the number is another process's there: then the path leads nowhere, as without
// /proc.
std::string process_folder(pid_t pid);

}  // namespace ddp::rendezvous
