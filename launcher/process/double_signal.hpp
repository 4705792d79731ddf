// SPDX-License-Identifier: BSD-3-Clause
// scancel and systemd signal every process of a job: each of ours hears it directly, and once more from the one above,
// which passes it on. That is one signal, not a user who asks a second time.
#pragma once

#include <chrono>
#include <optional>

namespace ddp::launcher {

class DoubleSignal {
 public:
  // True if the newest signal before this one is the same and came the other way a moment ago.
  bool came_the_other_way(int signal, bool from_above) {
    const Heard heard = {signal, from_above, std::chrono::steady_clock::now()};
    if (newest_ && newest_->signal == signal && newest_->from_above != from_above &&
        heard.time - newest_->time < std::chrono::seconds(2)) {
      return true;
    }
    newest_ = heard;
    return false;
  }

 private:
  struct Heard {
    int signal = 0;
    bool from_above = false;
    std::chrono::steady_clock::time_point time;
  };
  std::optional<Heard> newest_;
};

}  // namespace ddp::launcher
