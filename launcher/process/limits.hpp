// SPDX-License-Identifier: BSD-3-Clause
// The kernel's limits on open files and processes. ddprun raises its own as far as it may, and
// refuses to start a job for which they are too low, with the number that is needed. Workers get
// the limits that ddprun was started with.
#pragma once

#include <sys/resource.h>

#include <string>

namespace ddp::launcher {

struct Limits {
  rlimit files;
  rlimit processes;  // and threads, of this user
};

// Raises this process's limits. Returns them as they were before.
Limits raise_limits();

// Throws rendezvous::Error if this process may not open the files that `workers` workers take. When
// they start, these are a control group for each worker and `stream_files` for the streams of all.
// While they run, each worker has taken over two of them, and in a job of one node it has a
// connection to the store. Enlarges the kernel's file table for them and for `connections` connections
// (rendezvous::grow_file_table), so call it while this process has one thread.
void reserve_files(int workers, rlim_t stream_files, rlim_t connections, int nodes = 1);

// Returns "this user may have 40 processes and threads (ulimit -u)", for messages about a fork or
// thread that was refused.
std::string describe_process_limit();

}  // namespace ddp::launcher
