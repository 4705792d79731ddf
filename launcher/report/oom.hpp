// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether the kernel killed a worker that died of SIGKILL for lack of memory. There are three witnesses, the
// best one first: the kernel's log, which names the pid (often for root only); the counter of the workers' cgroup; the
// machine's counter, which may mean another user's process. If none of them says so, nothing is claimed.
//
// Used on the loop's thread. Reading the witnesses and drawing conclusions are separate, for the tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

// Number of processes that the kernel has killed for lack of memory; absent where this process cannot see it.
struct OomCounts {
  std::optional<std::int64_t> cgroup;   // memory.events or memory.oom_control, oom_kill
  std::optional<std::int64_t> machine;  // /proc/vmstat, oom_kill
};

// Returns whether more kills were counted than are explained, and then counts one as explained. A counter that was not
// there from the start proves nothing.
bool explain_one(const std::optional<std::int64_t>& counted, std::optional<std::int64_t>& explained);
// Returns the number after `name` in lines of `name number`.
std::optional<std::int64_t> counter_in(std::string_view text, std::string_view name);
// Returns whether this record of /dev/kmsg, "3,712,98765432,-;... Killed process 4242 (python3) total-vm:...", is about
// this process and not from before `since`, in us of the monotonic clock.
bool names_as_killed(std::string_view record, pid_t pid, std::int64_t since);
// Returns the folder of a process's memory cgroup, from /proc/self/cgroup and /proc/self/mountinfo; empty if it has
// none.
std::string memory_cgroup(const std::string& cgroups, const std::string& mounts);

class OomWatch {
 public:
  OomWatch();

  // Begins a round: kills that were counted before are not of this one.
  void start();
  // Returns the evidence, in words, that the kernel killed this worker, which has just died of SIGKILL; empty if there
  // is none. Each kill that was counted explains one death.
  std::string explain(pid_t pid);

 private:
  OomCounts count() const;

  std::string cgroup_;              // its folder; empty: none
  bool reads_kernel_log_ = false;   // its pids are those that this process sees
  std::int64_t round_started_ = 0;  // us of the monotonic clock
  OomCounts explained_;             // counts that are used up
};

}  // namespace ddp::launcher
