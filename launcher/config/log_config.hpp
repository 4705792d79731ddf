// SPDX-License-Identifier: BSD-3-Clause
// What the user wants done with the output of workers: -r, -t, --log-dir and related options. Plain values.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

enum class Console { Stdout, Stderr };

// The value of -r or -t: for each local rank a sum of 1 (stdout) and 2 (stderr), torch's Std.
struct StreamChoice {
  int of_all = 0;                // for all workers if by_rank is empty
  std::map<int, int> by_rank{};  // 0 for ranks that are not in it

  bool has(Console console, int local_rank) const {
    const auto mine = by_rank.find(local_rank);
    const int choice = by_rank.empty() ? of_all : mine == by_rank.end() ? 0 : mine->second;
    return (choice & (console == Console::Stdout ? 1 : 2)) != 0;
  }
  bool has_any() const { return of_all != 0 || !by_rank.empty(); }
};

inline constexpr char kDefaultLinePrefix[] = "[${role_name}${local_rank}]:";

struct LogConfig {
  std::string folder;  // --log-dir; empty: a temporary one under $TMPDIR; kNoFolder: none
  StreamChoice redirects;
  StreamChoice tee;
  std::optional<std::set<int>> shown_ranks;  // --local-ranks-filter: local ranks shown on the console
  std::vector<std::string> stdout_filters;   // --duplicate-stdout-filters: teed lines with one of these words are also
  std::vector<std::string> stderr_filters;   // in the attempt's filtered_stdout.log, filtered_stderr.log
  std::string line_prefix = kDefaultLinePrefix;
  std::string event_file;         // --event-log-file; empty: none
  std::string report_file;        // --report-file; empty: none
  bool events_on_stderr = false;  // --event-log-handler console

  bool writes_logs() const { return redirects.has_any() || tee.has_any(); }
};

inline constexpr char kNoFolder[] = "/dev/null";

}  // namespace ddp::launcher
