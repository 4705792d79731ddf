// SPDX-License-Identifier: BSD-3-Clause
// What the kernel says of threads, in /proc. Needs no right that the owner of a process does not have.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

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

}  // namespace ddp::launcher
