// SPDX-License-Identifier: BSD-3-Clause
// Recognizes a signal that arrives twice. scancel, systemd and a terminal's Ctrl-C signal several
// processes, so one of them receives it directly and once more from the process above, which
// forwards it. It must not count as a user's second request.
#pragma once

#include <chrono>
#include <optional>

namespace ddp::launcher {

class DoubleSignal {
 public:
  // Returns whether the previous signal was the same one, and arrived the other way (directly, or
  // from the process above) less than 2 s ago.
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
