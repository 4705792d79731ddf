// SPDX-License-Identifier: BSD-3-Clause
// The kernel's limits of files and processes: raised as far as they may be, and where that is too little for the job,
// the start is refused with the figure that is needed. Workers get back what ddprun was started with.
#pragma once

#include <sys/resource.h>

#include <string>

namespace ddp::launcher {

struct Limits {
  rlimit files;
  rlimit processes;  // and threads, of this user
};

// Raises this process's. Returns them as they were.
Limits raise_limits();

// Throws rendezvous::Error if this process may not have the files that starting so many workers takes: for each the two
// ends of two pipes and its control group, and two log files if it has any. Makes room for them, and for so many
// connections (rendezvous::grow_file_table: while this process has one thread).
void reserve_files(int workers, bool have_log_files, rlim_t connections);

// "this user may have 40 processes and threads (ulimit -u)", for a fork or thread that was refused.
std::string describe_process_limit();

}  // namespace ddp::launcher
