// SPDX-License-Identifier: BSD-3-Clause
// Decides which of the workers' timers expire, and which process gets which signal for it: the server's half of
// torch.distributed.elastic.timer over a file (torch file_based_local_timer.py, FileTimerServer). A process acquires a
// timer by naming the Unix time at which it expires, and releases it by a negative time.
//
// The clock is the wall clock, since the times come from the clients' time.time().
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

// One line of a client.
struct TimerRequest {
  pid_t pid = 0;
  std::string scope;
  double expiration = 0;  // Unix time in seconds; negative: releases the timer
  int signal = 0;         // sent to the process when the timer expires; 0 or less: none
  bool operator==(const TimerRequest&) const = default;
};

// Returns the request in {"version": 1, "pid": 7, "scope_id": "step", "expiration_time": 1700000000.5, "signal": 9};
// nothing if the line is anything else.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

// The timers of one process that have expired together.
struct ExpiredTimers {
  pid_t pid = 0;
  std::uint64_t start_time = 0;     // as it was given with the request
  std::vector<std::string> scopes;  // by expiration
  int signal = 0;                   // 0: none
  bool operator==(const ExpiredTimers&) const = default;
};

// Returns 'the timer of scope "step" expired (torch.distributed.elastic.timer)', printable.
std::string describe(const ExpiredTimers& timers);

class FileTimerCore {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Takes a request of a process. Its start time tells it from an earlier process with the same number, whose timers
  // are forgotten.
  void take(const TimerRequest& request, std::uint64_t start_time);
  // Forgets the timers of a process that has ended, or of all.
  void forget(pid_t pid) { processes_.erase(pid); }
  void clear() { processes_.clear(); }

  // Returns what has expired, by process. All timers of these processes are forgotten, as PyTorch's server does.
  std::vector<ExpiredTimers> expire(Time now);
  // Returns when the next timer expires; nothing if there is none.
  std::optional<Time> next() const;

 private:
  struct Timer {
    Time expiration;
    int signal = 0;
  };
  struct Process {
    std::uint64_t start_time = 0;
    std::map<std::string, Timer> timers;  // by scope
  };

  std::map<pid_t, Process> processes_;
};

}  // namespace ddp::launcher
