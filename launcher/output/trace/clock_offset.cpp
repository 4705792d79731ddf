// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/clock_offset.hpp"

#include <algorithm>

namespace ddp::launcher {

void ClockOffset::add(std::int64_t sent_ns, std::int64_t coordinator_ns, std::int64_t received_ns) {
  if (sent_ns <= 0 || coordinator_ns <= 0 || received_ns < sent_ns) return;
  const std::int64_t half = (received_ns - sent_ns) / 2;
  newest_.push_back({coordinator_ns - (sent_ns + half), half});
  if (newest_.size() > kRemembered) newest_.pop_front();
}

std::optional<ClockOffset::Estimate> ClockOffset::best() const {
  const auto shortest = std::min_element(newest_.begin(), newest_.end(),
                                         [](const Estimate& a, const Estimate& b) { return a.error_ns < b.error_ns; });
  return shortest == newest_.end() ? std::nullopt : std::optional(*shortest);
}

}  // namespace ddp::launcher
