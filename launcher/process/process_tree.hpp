// SPDX-License-Identifier: BSD-3-Clause
// Finding and killing descendants. The caller is a subreaper (PR_SET_CHILD_SUBREAPER): whatever its descendants leave
// behind, double-forked and in sessions of their own, becomes its child and cannot get away.
//
// No signal goes to a process that is not a descendant, though pids are used again: the pid of a child stays its own
// until the caller reaps it (on the thread that signals), and whoever is further down is held by a pidfd while it is
// looked at.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Every process below root, root not included, as /proc shows it now; processes being born may be missing.
std::vector<pid_t> descendants_of(pid_t root);

// The caller's children now.
std::vector<pid_t> children_of_self();

// Is `name=value` in the environment that the process was started with? (False if it cannot be read.)
bool was_started_with(pid_t pid, const std::string& name, const std::string& value);

// Is it on its way out (PF_EXITING)? Tells within 0.1 ms what waitpid tells after the memory was torn down: about
// 70 ms for each GiB.
bool is_exiting(pid_t pid);

// What waitpid will tell of a child that has let go of its memory, which is taken back now; nullopt: one of its threads
// has not, or it may not be looked at. 0: it ends well, or the kernel keeps to itself how it ends.
std::optional<int> status_of_dying(pid_t child);

// Bytes of memory that a process has in RAM; 0: it is not there, or dies.
std::size_t resident_size(pid_t pid);

// A signal to one of the caller's children and to everything below it.
void signal_family(pid_t child, int number);

// The same for every child, but for those in `but_not`. Between looking and signalling new ones may come: to kill, call
// it again until none is left.
void signal_descendants(int number, const std::vector<pid_t>& but_not = {});

// Kills and reaps until no descendant is left but children in `but_not` and what is theirs, blocking; for a process
// that has nothing else to do. The children that are still there after `deadline` (stuck in the kernel) are returned.
std::vector<pid_t> kill_descendants_and_wait(std::chrono::milliseconds deadline, std::vector<pid_t> but_not = {});

}  // namespace ddp::launcher
