// SPDX-License-Identifier: BSD-3-Clause
// Was a worker that died of SIGKILL ended by the kernel for lack of memory? Three witnesses, best first: the kernel's
// log, which names the pid (often for root only); the counter of the cgroup that workers are in; the machine's counter,
// which may mean somebody else's process. None of them says so: nothing is claimed.
//
// The loop thread's. The reading of the witnesses and the conclusion are apart, for the tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

// How many processes the kernel has killed for lack of memory, as far as this process can see. Absent: it cannot.
struct OomCounts {
  std::optional<std::int64_t> cgroup;   // memory.events or memory.oom_control, oom_kill
  std::optional<std::int64_t> machine;  // /proc/vmstat, oom_kill
};

// One more was counted than is explained: then it is. Nothing is said by a counter that was not there from the start.
bool explain_one(const std::optional<std::int64_t>& counted, std::optional<std::int64_t>& explained);
// The number after `name` in lines of `name number`.
std::optional<std::int64_t> counter_in(std::string_view text, std::string_view name);
// Is this record of /dev/kmsg, "3,712,98765432,-;... Killed process 4242 (python3) total-vm:...", about this process,
// and not from before `since`, in us of the monotonic clock?
bool names_as_killed(std::string_view record, pid_t pid, std::int64_t since);
// Where the memory cgroup of a process is, from /proc/self/cgroup and /proc/self/mountinfo; empty: nowhere.
std::string memory_cgroup(const std::string& cgroups, const std::string& mounts);

class OomWatch {
 public:
  OomWatch();

  // A round begins: what was counted before is not its.
  void start();
  // Of a worker that was just killed by SIGKILL: what says that the kernel did it, in words; empty: nothing does. Each
  // kill that was counted explains one death.
  std::string explain(pid_t pid);

 private:
  OomCounts count() const;

  std::string cgroup_;              // its folder; empty: none
  bool reads_kernel_log_ = false;   // whose pids are ours
  std::int64_t round_started_ = 0;  // us of the monotonic clock
  OomCounts explained_;             // counts that are used up
};

}  // namespace ddp::launcher
