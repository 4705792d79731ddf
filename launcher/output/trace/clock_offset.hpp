// SPDX-License-Identifier: BSD-3-Clause
// Estimates how far the coordinator's clock is ahead of this node's, from round trips over the agent link: the
// coordinator read its clock somewhere between the sending and the arrival, so the middle is wrong by at most half of
// the round trip. The shortest of the newest round trips counts; older ones are forgotten, since clocks drift.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace ddp::launcher {

class ClockOffset {
 public:
  struct Estimate {
    std::int64_t ahead_ns = 0;  // coordinator's clock - this node's
    std::int64_t error_ns = 0;  // at most
    bool operator==(const Estimate&) const = default;
  };

  // A round trip that this node's clock saw begin and end, and what the coordinator's said meanwhile. Impossible ones
  // are ignored.
  void add(std::int64_t sent_ns, std::int64_t coordinator_ns, std::int64_t received_ns);
  std::optional<Estimate> best() const;

 private:
  static constexpr std::size_t kRemembered = 60;  // a minute of heartbeats
  std::deque<Estimate> newest_;
};

}  // namespace ddp::launcher
