// SPDX-License-Identifier: BSD-3-Clause
// A connection is a file, and the usual limit of 1,024 is for programs that use select().
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

// Raises this process's limit of open files as far as it may. Returns the limit as it was.
inline rlimit raise_file_limit() {
  rlimit inherited = {};
  getrlimit(RLIMIT_NOFILE, &inherited);
  const rlimit raised = {inherited.rlim_max, inherited.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return inherited;
}

// Makes room for so many open files, or for as many as this process may have. To be called while it has one thread: the
// kernel's table of them doubles whenever it is full, and where threads share it, whoever opens that file waits until
// all CPUs have noticed, up to 10 ms.
inline void grow_file_table(rlim_t files) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int last = static_cast<int>(std::min(files, limit.rlim_cur)) - 1;
  const Descriptor any(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor highest(fcntl(any.get(), F_DUPFD_CLOEXEC, last));
}

}  // namespace ddp::rendezvous
