// SPDX-License-Identifier: BSD-3-Clause
// How a rank waits for another one: it spins for a while if it has a CPU of its own, or else gives its CPU to the other
// ranks there; then it sleeps in the kernel. A rank that had to sleep spins less the next time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives {

// About as long as a full patience lasts.
inline constexpr std::chrono::microseconds kShortSleep{100};

// How often a wait looks, with a pause of some 10 ns between, before it sleeps.
struct Patience {
  int most = 0;
  int looks = most;

  // A rank that slept answers late, by the time of a wake-up, and the one that waits for its answer would sleep, too,
  // and so on in every later wait. So spinning goes on after a sleep that spinning would have spared, and is tried
  // again now and then after longer ones.
  void after_spinning(int looked) {
    if (looked > most / 16) looks = most;
  }
  void after_sleeping(std::chrono::nanoseconds slept) {
    looks = slept < kShortSleep || ++sleeps % 16 == 0 ? most : most / 16;
  }

  unsigned sleeps = 0;
};

// Gives the CPU to other ranks, which are as quick as a switch between processes, while a sleep and a wake-up take
// several times as long. Where another program wants the CPU too, or a rank that computes, a yield costs a time slice
// of some milliseconds, and the kernel runs a rank that was asleep and is woken up almost at once. So after such a
// yield a rank goes without yields for ten times as long.
class Yields {
 public:
  using Clock = std::chrono::steady_clock;

  // Yields until ready() says yes, which it returns, or until yields do not pay.
  template <typename Ready>
  bool until(Ready&& ready) {
    Clock::time_point now = Clock::now();
    const Clock::time_point end = now + kLongest;
    while (now < end && pay(now)) {
      sched_yield();
      const Clock::time_point before = std::exchange(now, Clock::now());
      took(before, now);
      if (ready()) return true;
    }
    return false;
  }

  bool pay(Clock::time_point now) const { return now >= resume_at_; }
  void took(Clock::time_point from, Clock::time_point to) {
    if (to - from > kOtherProgram) resume_at_ = to + std::min<Clock::duration>(10 * (to - from), kLongestPause);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{200};        // then the other ranks compute
  static constexpr std::chrono::microseconds kOtherProgram{1000};  // less than a time slice
  static constexpr std::chrono::seconds kLongestPause{1};
  Clock::time_point resume_at_;
};

// A sleep ends by itself after this time, should a wake-up be missed; what ends a wait wakes it.
inline constexpr long kLongestSleepNs = 50'000'000;

// Looks per check: a check reads more than one word.
inline constexpr int kLooksPerCheck = 1000;

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once ready() says yes, to this function or to check(), which throws if the wait must end otherwise. It may
// say yes once only. sleep() blocks shortly in the kernel.
template <typename Ready, typename Check, typename Sleep>
void wait_until(Patience& patience, Ready&& ready, Check&& check, Sleep&& sleep) {
  for (int i = 1; i <= patience.looks; ++i) {
    if (ready()) return patience.after_spinning(i);
    pause_processor();
    if (i % kLooksPerCheck == 0 && check()) return patience.after_spinning(i);
  }
  const auto begun = std::chrono::steady_clock::now();
  while (!ready() && !check()) {
    sleep();
  }
  patience.after_sleeping(std::chrono::steady_clock::now() - begun);
}

// Writes this process's CPUs into its line, for share_of_cpus().
void publish_cpus(Presence& presence);

// Returns how many CPUs' time the control groups above this process leave it, or nothing if none limits it.
std::optional<double> cpu_quota(const std::string& cgroup_file = "/proc/self/cgroup",
                                const std::string& mounted_at = "/sys/fs/cgroup");

// Returns whether the rank has a CPU of its own: it may use at least as many CPUs as ranks share them. All ranks have
// published theirs. `ranks_on_node` counts also the ranks of the job that are in other groups.
bool has_own_cpu(const Segment& segment, std::uint32_t rank, std::uint32_t ranks_on_node, std::optional<double> quota);

// Writes the CPU that this thread is on into the rank's line, for leave_cpu_of().
void publish_place(Presence& presence);

// Moves this thread to a CPU that no rank of the segment was on last, if it is on the one of the rank that it waits
// for. The kernel may wake a rank on the CPU of the one that wakes it, where it waits until that one has spun in vain,
// and both would stay there. The CPUs that the thread may use stay the same. Returns whether it moved.
bool leave_cpu_of(const Segment& segment, std::uint32_t rank, std::uint32_t waited_for);

// Looks of a rank that has a CPU of its own: as long as it takes to wake up a rank that sleeps, about.
inline constexpr int kMostLooks = 4000;

}  // namespace ddp::collectives
