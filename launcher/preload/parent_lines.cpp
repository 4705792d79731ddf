// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/parent_lines.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kQuoted = 200, kReason = 4096;  // bytes of a line, in a message
constexpr double kMostSeconds = 1e9;

std::string shown(std::string_view text, std::size_t bytes) {
  return rendezvous::cut_line(rendezvous::printable_line(text.substr(0, 2 * bytes)), bytes);
}

ParentLine nonsense(std::string_view line) { return ParentTalksNonsense{"it said '" + shown(line, kQuoted) + "'"}; }

ParentLine parsed(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  words >> what >> std::ws;
  if (what == "ready") {
    double seconds = 0;
    std::string modules;
    if (!(words >> seconds) || seconds < 0 || seconds > kMostSeconds) return nonsense(line);
    words >> modules;
    return ParentReady{rendezvous::printable_line(modules),
                       std::chrono::milliseconds(static_cast<long long>(seconds * 1000))};
  }
  if (what == "spawned") {
    ParentForked forked;
    std::set<pid_t> seen;
    for (std::string word; words >> word;) {
      const pid_t pid = rendezvous::parse_number<pid_t>(word).value_or(0);
      if (pid <= 0 || !seen.insert(pid).second) return nonsense(line);  // it will be signalled
      forked.pids.push_back(pid);
    }
    return forked;
  }
  if (what == "refused" || what == "failed") {
    std::string why;
    std::getline(words, why);
    return ParentGivesUp{shown(why, kReason)};
  }
  return nonsense(line);
}

}  // namespace

bool ParentLines::next(ParentLine& line) {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos && received_.size() <= kMaxParentLine) return false;
  if (end == std::string::npos || end > kMaxParentLine) {
    line = ParentTalksNonsense{"it said '" + shown(received_, kQuoted) + "', and no line is that long"};
    received_.clear();
    return true;
  }
  line = parsed(received_.substr(0, end));
  received_.erase(0, end + 1);
  return true;
}

}  // namespace ddp::launcher
