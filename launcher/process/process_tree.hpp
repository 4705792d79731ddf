// SPDX-License-Identifier: BSD-3-Clause
// Finds and kills descendants. The caller is a subreaper (PR_SET_CHILD_SUBREAPER): processes that
// its descendants leave behind, double-forked and in sessions of their own, become its children and
// cannot escape.
//
// No signal goes to a process that is not a descendant, although pids are reused: a child keeps its
// pid until the caller reaps it (on the thread that signals), and processes further down are held
// while they are examined, by a pidfd or, before Linux 5.3, by their folder in /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Returns every process below root, root not included, as /proc shows them now. Processes that
// start meanwhile may be missing.
std::vector<pid_t> descendants_of(pid_t root);

// Returns the caller's current children.
std::vector<pid_t> children_of_self();

// Returns whether the environment that the process was started with contains `name=value`; false if
// it cannot be read.
bool was_started_with(pid_t pid, const std::string& name, const std::string& value);

// Returns the kernel's name of a process, at most 15 characters; empty if there is no such process.
std::string name_of(pid_t pid);

// Returns the words of a process's command line with blanks between; empty if there is no such process.
std::string command_line_of(pid_t pid);

// Returns whether the process is in the session that `leader` leads or led.
bool is_in_session_of(pid_t leader, pid_t pid);

// Returns whether a shell has put the process into the background of its terminal.
bool is_in_background(pid_t pid);

// Returns when the process started, in the kernel's units; nothing if there is no such process. Together with its pid
// it names one process for as long as the machine runs.
std::optional<std::uint64_t> start_time_of(pid_t pid);

// Returns whether the process is exiting (PF_EXITING), which it is within 0.1 ms of its death.
// waitpid reports the death once the memory is freed, about 70 ms later for each GiB.
bool is_exiting(pid_t pid);

// Returns whether the process handles a signal by a function of its own.
bool catches_signal(pid_t pid, int signal);

// Returns the status that waitpid will report for a child whose threads have all released their
// memory, which the kernel is freeing now. Returns nothing if a thread has not, or if the caller
// may not examine the child. 0 means success, or that the kernel does not show the status.
std::optional<int> status_of_dying(pid_t child);

// Returns a process's resident size in bytes; 0 if the process does not exist or is dying.
std::size_t resident_size(pid_t pid);

// Signals one of the caller's children and everything below it, except processes that are not `wanted`.
void signal_family(pid_t child, int number, const std::function<bool(pid_t)>& wanted = {});

// Signals every child except those in `but_not`, and everything below them. New descendants may
// start meanwhile: to kill all, call it again until none is left.
void signal_descendants(int number, const std::vector<pid_t>& but_not = {});

// Kills everything below one of the caller's children, but not the child itself, which reaps it. Returns whether
// nothing below it lives any more; false: something still did at `deadline`.
bool kill_below(pid_t child, std::chrono::milliseconds deadline);

// Kills and reaps until no descendant is left, except children in `but_not` and their descendants.
// Blocks, so it is for a process that has nothing else to do. Returns the children that still exist
// after `deadline` (stuck in the kernel).
std::vector<pid_t> kill_descendants_and_wait(std::chrono::milliseconds deadline, std::vector<pid_t> but_not = {});

}  // namespace ddp::launcher
