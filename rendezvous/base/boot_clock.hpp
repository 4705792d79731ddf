// SPDX-License-Identifier: BSD-3-Clause
// Tells the time since the machine was booted, with the time during which it was suspended. steady_clock stands still
// meanwhile, while the other nodes of a job go on.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace ddp::rendezvous {

struct BootClock {
  // A core compares the times of one clock only, so they have the type of steady_clock's.
  static std::chrono::steady_clock::time_point now() {
    timespec time = {};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return std::chrono::steady_clock::time_point(std::chrono::seconds(time.tv_sec) +
                                                 std::chrono::nanoseconds(time.tv_nsec));
  }
};

// Returns a BootClock's time as a timer of CLOCK_BOOTTIME takes it. Zero would disarm the timer, so it is never
// returned.
inline timespec to_timespec(std::chrono::steady_clock::time_point time) {
  const auto since_boot = std::max(time.time_since_epoch(), std::chrono::steady_clock::duration(1));
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_boot);
  return {static_cast<time_t>(whole.count()), static_cast<long>(std::chrono::nanoseconds(since_boot - whole).count())};
}

}  // namespace ddp::rendezvous
