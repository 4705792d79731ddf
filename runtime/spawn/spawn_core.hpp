// SPDX-License-Identifier: BSD-3-Clause
// Decides what ddp::spawn does when its processes end: which failure it reports, and when it stops the other processes.
// Has no side effects; the time is an argument.
//
//     Running --a process fails--> Stopping: SIGTERM, after the grace SIGKILL --none is left--> over
//        \--a process reports a lost peer: wait up to kCauseWindow for that peer's end--/
//
// A process that lost a connection may end before the one that broke it. So a lost peer is the cause only if no other
// failure follows.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::runtime {

// What a process reported about its work before it ended.
struct SpawnReport {
  ddp_status status = DDP_OK;
  std::string text;
};

struct SpawnFailure {
  int rank = 0;
  int exit_code = -1;  // -1: the process did not exit
  int signal = 0;      // the signal that killed it, or 0
  ddp_status status = DDP_SYSTEM;
  std::string text;  // "rank 1 of 4 was killed by SIGSEGV (Segmentation fault)"
};

class SpawnCore {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kCauseWindow{1000};

  struct Ending {
    int rank = 0;
    int exit_code = -1;  // -1 with signal 0: unknown
    int signal = 0;
    std::optional<SpawnReport> report;
  };
  struct Actions {
    int signal = 0;                        // to send to all processes that are left; 0: none
    std::optional<SpawnFailure> announce;  // to the ranks that are left
  };

  SpawnCore(int size, std::chrono::milliseconds grace)
      : grace_(grace), is_left_(static_cast<std::size_t>(size), true), left_(size) {}

  Actions ended(const Ending& ending, Time now);
  // Stops the processes, since their work is not wanted any more.
  Actions stop(Time now);
  Actions wake(Time now);
  Time wake_at() const;  // waking early or late is harmless

  bool over() const { return left_ == 0; }
  bool is_left(int rank) const { return is_left_[static_cast<std::size_t>(rank)]; }
  const std::optional<SpawnFailure>& failure() const { return failure_; }

 private:
  enum class State { Running, Wondering, Stopping, Killed };
  std::optional<SpawnFailure> failure_of(const Ending& ending) const;
  Actions decide(Time now);

  const std::chrono::milliseconds grace_;
  std::vector<bool> is_left_;
  int left_;
  State state_ = State::Running;
  Time deadline_ = Time::max();  // when the state ends
  std::optional<SpawnFailure> failure_;
};

}  // namespace ddp::runtime
