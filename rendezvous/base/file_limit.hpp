// SPDX-License-Identifier: BSD-3-Clause
// Limits of open files. Each connection is a file, and the usual limit of 1,024 is meant for programs that use
// select().
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

// Descriptors that a store's server leaves to the rest of its process, but no more than half of all.
inline constexpr rlim_t kReservedFiles = 64;

// Raises this process's limit of open files to its hard limit. Returns the limits as they were.
inline rlimit raise_file_limit() {
  rlimit inherited = {};
  getrlimit(RLIMIT_NOFILE, &inherited);
  const rlimit raised = {inherited.rlim_max, inherited.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return inherited;
}

// Returns the limit of open files, and how many of them a store's server takes at most.
inline rlim_t file_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}
inline rlim_t servers_files() { return file_limit() - std::min(file_limit() / 2, kReservedFiles); }
// Returns how many agents' links may be open that are shaking hands, and again how many that have then said nothing
// yet. The rest is left to nodes and workers.
inline std::size_t most_silent_links() { return std::max<std::size_t>(servers_files() / 4, 16); }

// Makes room in the kernel's table for `files` open files, or for as many as this process may have. Call it while the
// process has one thread: the table doubles whenever it is full, and where threads share it, the thread that opens the
// next file waits until all CPUs have noticed, up to 10 ms.
inline void grow_file_table(rlim_t files) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int last = static_cast<int>(std::min(files, limit.rlim_cur)) - 1;
  const Descriptor any(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor highest(fcntl(any.get(), F_DUPFD_CLOEXEC, last));
}

}  // namespace ddp::rendezvous
