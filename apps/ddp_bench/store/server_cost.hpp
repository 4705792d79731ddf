// SPDX-License-Identifier: BSD-3-Clause
// What a process on this machine has cost so far, as the kernel counts it: of all figures, other programs change these
// least.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace ddp::bench {

struct ServerCost {
  double cpu_us = 0;  // all its threads, to the nanosecond (/proc/<pid>/task/*/schedstat)
  // Time in user mode and in the kernel, sampled at each tick (/proc/<pid>/stat): good for shares of seconds, not of
  // milliseconds.
  double user_ticks = 0;
  double system_ticks = 0;
  std::size_t resident = 0;  // bytes
};

// Throws std::runtime_error if there is no such process.
ServerCost cost_of(pid_t pid);

}  // namespace ddp::bench
