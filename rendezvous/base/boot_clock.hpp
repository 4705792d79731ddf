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

// Returns a clock's time as a timerfd of that clock takes it: BootClock's for CLOCK_BOOTTIME, system_clock's for
// CLOCK_REALTIME. Zero would disarm the timer, so it is never returned.
template <typename Clock, typename Duration>
timespec to_timespec(std::chrono::time_point<Clock, Duration> time) {
  const auto since_epoch = std::max<std::chrono::nanoseconds>(time.time_since_epoch(), std::chrono::nanoseconds(1));
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_epoch);
  return {static_cast<time_t>(whole.count()), static_cast<long>((since_epoch - whole).count())};
}

}  // namespace ddp::rendezvous
