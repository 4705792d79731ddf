// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/parent_messages.hpp"

#include <set>
#include <sstream>
#include <string_view>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::FrameKind;

constexpr std::size_t kQuoted = 200, kReason = 4096;  // bytes of a payload, in a message
constexpr double kMostSeconds = 1e9;

std::string shown(std::string_view text, std::size_t bytes) {
  return rendezvous::cut_line(rendezvous::printable_line(text.substr(0, 2 * bytes)), bytes);
}

ParentMessage nonsense(std::string_view text) { return ParentGivesUp{"it said '" + shown(text, kQuoted) + "'"}; }

}  // namespace

ParentMessage parent_message(const rendezvous::Frame& frame) {
  if (frame.kind == FrameKind::ParentGivesUp) return ParentGivesUp{shown(frame.payload, kReason)};
  std::istringstream words{std::string(frame.payload)};
  if (frame.kind == FrameKind::ParentReady) {
    double seconds = 0;
    std::string modules;
    if (!(words >> seconds) || seconds < 0 || seconds > kMostSeconds) return nonsense(frame.payload);
    words >> modules;
    return ParentReady{rendezvous::printable_line(modules),
                       std::chrono::milliseconds(static_cast<long long>(seconds * 1000))};
  }
  ParentForked forked;
  std::set<pid_t> seen;
  for (std::string word; words >> word;) {
    const pid_t pid = rendezvous::parse_number<pid_t>(word).value_or(0);
    if (pid <= 0 || !seen.insert(pid).second) return nonsense(frame.payload);  // it will be signalled
    forked.pids.push_back(pid);
  }
  return forked;
}

}  // namespace ddp::launcher
