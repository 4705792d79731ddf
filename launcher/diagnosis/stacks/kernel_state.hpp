// SPDX-License-Identifier: BSD-3-Clause
// What the kernel says of threads, in /proc. Needs no right that the owner of a process does not have.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace ddp::launcher {

struct KernelThread {
  std::string name;
  char state = '?';  // as in proc(5): R, S, D, T, t, Z
  std::string wait;  // the kernel's function in which it sleeps; empty where the kernel does not say

  // Returns "runs", "asleep in futex_wait_queue", "stopped by a signal".
  std::string words() const;
};

// Returns the threads of a process by id; none if it has ended.
std::map<pid_t, KernelThread> kernel_threads(pid_t process);

// Returns whether a signal that stops the process has been sent and is not delivered yet. A tracer that died while it
// attached leaves one behind at a thread in the kernel where no signal reaches it; SIGCONT takes it back.
bool is_about_to_stop(pid_t process);

// Returns processes that a process has started, and those that they have: at most `most`, without those that have
// ended.
std::vector<pid_t> descendants_of(pid_t process, std::size_t most);

}  // namespace ddp::launcher
