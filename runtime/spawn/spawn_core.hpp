// SPDX-License-Identifier: BSD-3-Clause
// What ddp::spawn makes of the ends of its processes: which failure is told, who is stopped, and when. Decides and
// touches nothing; the time comes in.
//
//     Running --one fails by itself--> Stopping: SIGTERM, after the grace SIGKILL --none is left--> over
//        \--one says that it lost another: for kCauseWindow that one's end may come--/
//
// Who lost a connection may be quicker to end than who broke it: so that is a cause only if no other comes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::runtime {

// What a process said of its work before it ended.
struct SpawnReport {
  ddp_status status = DDP_OK;
  std::string text;
};

struct SpawnFailure {
  int rank = 0;
  int exit_code = -1;  // -1: there is none
  int signal = 0;      // that killed it
  ddp_status status = DDP_SYSTEM;
  std::string text;  // "rank 1 of 4 was killed by SIGSEGV (Segmentation fault)"
};

class SpawnCore {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kCauseWindow{1000};

  struct Ending {
    int rank = 0;
    int exit_code = -1;  // both -1 and 0: nobody knows
    int signal = 0;
    std::optional<SpawnReport> report;
  };
  struct Actions {
    int signal = 0;                        // to all that are left; 0: none
    std::optional<SpawnFailure> announce;  // the ranks that are left
  };

  SpawnCore(int size, std::chrono::milliseconds grace)
      : grace_(grace), is_left_(static_cast<std::size_t>(size), true), left_(size) {}

  Actions ended(const Ending& ending, Time now);
  // Nobody wants their work any more.
  Actions stop(Time now);
  Actions wake(Time now);
  Time wake_at() const;  // early and late ones are harmless

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
  Time deadline_ = Time::max();  // of the state
  std::optional<SpawnFailure> failure_;
};

}  // namespace ddp::runtime
