// SPDX-License-Identifier: BSD-3-Clause
// What a process on this machine has cost so far, as the kernel counts it: the figure that other programs' noise
// changes least.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace ddp::bench {

struct ServerCost {
  double cpu_us = 0;         // all its threads, to the nanosecond (/proc/<pid>/task/*/schedstat)
  double user_ticks = 0;     // of the two kinds of time, sampled at each tick (/proc/<pid>/stat): good for shares of
  double system_ticks = 0;   // seconds, not of milliseconds
  std::size_t resident = 0;  // bytes
};

// Throws std::runtime_error if there is no such process.
ServerCost cost_of(pid_t pid);

}  // namespace ddp::bench
