// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/failure_report.hpp"

#include <algorithm>
#include <ctime>
#include <sstream>

namespace ddp::launcher {

using rendezvous::WorkerFailure;

namespace {

std::string local_time(rendezvous::WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

void add_indented(std::vector<std::string>& lines, const std::string& text) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back("    | " + line);
}

// "0-3, 5"
std::string ranges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<std::string> failure_report(const std::string& program, const WorkerFailure& cause,
                                        const std::vector<WorkerFailure>& all) {
  std::vector<std::string> lines;
  lines.push_back(program + " failed: " + in_words(cause));
  lines.push_back("  first failure: rank " + std::to_string(cause.rank) + " (local rank " +
                  std::to_string(cause.local_rank) + ", pid " + std::to_string(cause.pid) + ") on " + cause.host +
                  " at " + local_time(cause.time));
  if (!cause.message.empty()) {
    lines.push_back("  its error:");
    add_indented(lines, cause.message);
  }
  if (!cause.stderr_tail.empty()) {
    lines.push_back("  the last lines of its stderr:");
    for (const std::string& line : cause.stderr_tail) lines.push_back("    | " + line);
  }
  if (!cause.stderr_log.empty()) lines.push_back("  all of its stderr: " + cause.stderr_log);
  std::vector<int> stopped;
  for (const WorkerFailure& failure : all) {
    if (failure.rank == cause.rank) continue;
    if (failure.stopped_by_ddprun) {
      stopped.push_back(failure.rank);
    } else {
      lines.push_back("  after it: " + in_words(failure) + " (pid " + std::to_string(failure.pid) + ")");
      if (failure.message != cause.message) add_indented(lines, failure.message);
    }
  }
  if (!stopped.empty()) {
    lines.push_back((stopped.size() == 1 ? "  stopped by ddprun: rank " : "  stopped by ddprun: ranks ") +
                    ranges(stopped));
  }
  return lines;
}

}  // namespace ddp::launcher
