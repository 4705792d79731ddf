// SPDX-License-Identifier: BSD-3-Clause
// How many of the restarts that a job may have are used: all since its begin or, with a window (--restart-window),
// those within it.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

class RestartBudget {
 public:
  explicit RestartBudget(const JobShape& job = {}) : most_(job.max_restarts), window_(job.restart_window) {}

  void spend(TimePoint now) {
    ++spent_;
    if (window_.count() == 0) return;
    times_.push_back(now);
    if (times_.size() > static_cast<std::size_t>(std::max(most_, 1))) times_.pop_front();  // more never counts
  }
  // Returns when the restarts were spent that may still count, the oldest first.
  std::vector<TimePoint> spent() const {
    if (window_.count() == 0) return std::vector<TimePoint>(static_cast<std::size_t>(spent_));
    return {times_.begin(), times_.end()};
  }
  int used(TimePoint now) const {
    if (window_.count() == 0) return spent_;
    return static_cast<int>(
        std::count_if(times_.begin(), times_.end(), [&](TimePoint time) { return now - time < window_; }));
  }

 private:
  int most_;
  std::chrono::milliseconds window_;
  int spent_ = 0;
  std::deque<TimePoint> times_;  // the newest, oldest first
};

}  // namespace ddp::rendezvous
