// SPDX-License-Identifier: BSD-3-Clause
// A connection is a file, and the usual limit of 1,024 is for programs that use select().
#pragma once

#include <sys/resource.h>

namespace ddp::rendezvous {

// Raises this process's limit of open files as far as it may. Returns the limit as it was.
inline rlimit raise_file_limit() {
  rlimit inherited = {};
  getrlimit(RLIMIT_NOFILE, &inherited);
  const rlimit raised = {inherited.rlim_max, inherited.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return inherited;
}

}  // namespace ddp::rendezvous
