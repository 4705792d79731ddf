// SPDX-License-Identifier: BSD-3-Clause
// How a rank waits for another one: it spins if it has a CPU of its own, then lets others run, then sleeps in the
// kernel. A rank that spins while the one it waits for has no CPU makes both slow: with more ranks than CPUs, a policy
// without spinning is faster by orders of magnitude.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/host/segment.hpp"

namespace ddp::collectives {

struct WaitPolicy {
  int spins = 0;   // looks with a pause between, some 20 ns each
  int yields = 0;  // looks after which the CPU goes to another thread that wants it
};

// Looks per check: a check reads more than one word.
inline constexpr int kLooksPerCheck = 1000;

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once ready() does. check() throws if the wait must end otherwise; sleep() blocks shortly in the kernel.
template <typename Ready, typename Check, typename Sleep>
void wait_until(const WaitPolicy& policy, Ready&& ready, Check&& check, Sleep&& sleep) {
  for (int i = 1; i <= policy.spins; ++i) {
    if (ready()) return;
    pause_processor();
    if (i % kLooksPerCheck == 0) check();
  }
  for (int i = 1; i <= policy.yields; ++i) {
    if (ready()) return;
    sched_yield();
    if (i % 16 == 0) check();
  }
  for (;;) {
    if (ready()) return;
    check();
    sleep();
  }
}

// Writes this process's CPUs into its line, for share_of_cpus().
void publish_cpus(Presence& presence);

// Returns how many CPUs' time the control groups above this process leave it, or nothing if none limits it.
std::optional<double> cpu_quota(const std::string& cgroup_file = "/proc/self/cgroup",
                                const std::string& mounted_at = "/sys/fs/cgroup");

// Returns whether the rank has a CPU of its own: it may use at least as many CPUs as ranks share them. All ranks have
// published theirs. `ranks_on_node` counts also the ranks of the job that are in other groups.
bool has_own_cpu(const Segment& segment, std::uint32_t rank, std::uint32_t ranks_on_node, std::optional<double> quota);

WaitPolicy wait_policy(bool own_cpu);

}  // namespace ddp::collectives
