// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string_view>

#include "launcher/report/exit_meaning.hpp"
#include "launcher/text/ranges.hpp"
#include "launcher/text/time_text.hpp"
#include "rendezvous/link/failures.hpp"

namespace ddp::launcher {

using rendezvous::WorkerFailure;

namespace {

constexpr char kTimeFormat[] = "%Y-%m-%d %H:%M:%S";
constexpr char kQuote[] = "    | ";
constexpr std::size_t kFollowersShown = 16;  // with a line of their own

// Returns whether the program could not be executed; the message says so, and the exit code adds nothing.
bool never_ran(const WorkerFailure& failure) { return failure.message.starts_with("cannot execute "); }

// Returns whether ddprun ended it because of a timer; the message says which.
bool was_ended_by_timer(const WorkerFailure& failure) {
  return failure.status.signal != 0 && failure.message.starts_with("the timer") &&
         failure.message.find(" expired (torch.distributed.elastic.timer)") != std::string::npos;
}

std::string describe_meaning(const WorkerFailure& failure) {
  if (was_ended_by_timer(failure)) return "ddprun ended it because its timer had expired";
  return never_ran(failure) ? "" : meaning_of(failure.status, failure.out_of_memory);
}

std::vector<const WorkerFailure*> followers(const WorkerFailure& cause, const std::vector<WorkerFailure>& all) {
  std::vector<const WorkerFailure*> others;
  for (const WorkerFailure& failure : all) {
    if (failure.rank != cause.rank && !failure.stopped_by_ddprun) others.push_back(&failure);
  }
  return others;
}

std::vector<int> stopped_ranks(const WorkerFailure& cause, const std::vector<WorkerFailure>& all) {
  std::vector<int> ranks;
  for (const WorkerFailure& failure : all) {
    if (failure.rank != cause.rank && failure.stopped_by_ddprun) ranks.push_back(failure.rank);
  }
  return ranks;
}

void add_followers(std::vector<std::string>& lines, const WorkerFailure& cause, const std::vector<WorkerFailure>& all) {
  std::size_t shown = 0;
  std::vector<int> more;
  for (const WorkerFailure* other : followers(cause, all)) {
    if (shown++ >= kFollowersShown) {
      more.push_back(other->rank);
      continue;
    }
    const bool same = other->message == cause.message;  // once is enough
    lines.push_back("  after it: " + (same ? describe(*other) : describe_with_message(*other)) + " (pid " +
                    std::to_string(other->pid) + ")");
  }
  if (!more.empty()) lines.push_back("  after them: " + describe_ranks(more));
}

// Quotes the text, and shows a line that repeats, as in an endless recursion, only once.
void add_quoted(std::vector<std::string>& lines, const std::string& text) {
  std::istringstream stream(text);
  std::string earlier;
  int repeated = 0;
  const auto add_repeated = [&] {
    if (repeated > 1) lines.push_back(std::string(kQuote) + "[" + std::to_string(repeated) + " more of this line]");
    if (repeated == 1) lines.push_back(kQuote + earlier);
    repeated = 0;
  };
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line == earlier) {
      ++repeated;
      continue;
    }
    add_repeated();
    lines.push_back(kQuote + line);
    earlier = line;
  }
  add_repeated();
}

// Returns the files of several flight recorders as a pattern that can be pasted into a shell. With --log-dir each
// worker's is in a folder of its own, else all are in one.
std::filesystem::path pattern_of(const std::vector<const WorkerFailure*>& failures) {
  const auto folder_of = [](const WorkerFailure* failure) {
    return std::filesystem::path(failure->flight_recorder).parent_path();
  };
  const std::filesystem::path folder = folder_of(failures.front());
  const bool is_one = std::all_of(failures.begin(), failures.end(),
                                  [&](const WorkerFailure* failure) { return folder_of(failure) == folder; });
  return (is_one ? folder : folder.parent_path() / "*") / "flight_recorder_rank*.json";
}

// Adds a line for the flight recorders of each node.
void add_flight_recorders(std::vector<std::string>& lines, const WorkerFailure& cause,
                          const std::vector<WorkerFailure>& all) {
  std::map<std::string, std::vector<const WorkerFailure*>> by_host;
  if (!cause.flight_recorder.empty()) by_host[cause.host].push_back(&cause);
  for (const WorkerFailure& failure : all) {
    if (failure.rank != cause.rank && !failure.flight_recorder.empty()) by_host[failure.host].push_back(&failure);
  }
  for (const auto& [host, failures] : by_host) {
    std::vector<int> ranks;
    for (const WorkerFailure* failure : failures) ranks.push_back(failure->rank);
    const std::string files = ranks.size() > 1 ? pattern_of(failures).string() : failures.front()->flight_recorder;
    lines.push_back("  last operations of " + describe_ranks(ranks) + " on " + host + ": " + files);
  }
}

std::string numbers_json(const std::vector<int>& numbers) {
  std::string list;
  for (const int number : numbers) list += (list.empty() ? "" : ", ") + std::to_string(number);
  return "[" + list + "]";
}

std::optional<std::int64_t> if_any(int number) {
  return number != 0 ? std::optional<std::int64_t>(number) : std::nullopt;
}

rendezvous::JsonObject details_of(const WorkerFailure& failure) {
  rendezvous::JsonObject object;
  object.number("rank", failure.rank).number("local_rank", failure.local_rank).text("node", failure.host);
  object.number("pid", failure.pid).number("exit_code", failure.status.shell_code());
  object.number("signal", if_any(failure.status.signal)).number("time_ms", failure.time.time_since_epoch().count());
  return object.text("what", describe(failure))
      .text("error", failure.message)
      .text("flight_recorder", failure.flight_recorder);
}

}  // namespace

std::vector<std::string> failure_report(const JobEnd& end) {
  if (!end.cause) return {end.program + " stopped: " + end.reason};
  const WorkerFailure& cause = *end.cause;
  const std::vector<WorkerFailure>& all = end.failures;
  std::vector<std::string> lines;
  // What happened, what it means, and what to do.
  lines.push_back(end.program + " failed: " + describe(cause));
  if (const auto meaning = describe_meaning(cause); !meaning.empty()) lines.push_back("  that is: " + meaning);
  if (!cause.hint.empty()) lines.push_back("  hint: " + cause.hint);
  lines.push_back("  first failure: rank " + std::to_string(cause.rank) + " (local rank " +
                  std::to_string(cause.local_rank) + (cause.pid != 0 ? ", pid " + std::to_string(cause.pid) : "") +
                  ") on " + cause.host + " at " + local_time(cause.time, kTimeFormat));
  // The other workers.
  add_followers(lines, cause, all);
  if (const auto stopped = stopped_ranks(cause, all); !stopped.empty()) {
    lines.push_back("  stopped by ddprun: " + describe_ranks(stopped));
  }
  // What the worker wrote, and the files with more of it.
  if (!cause.message.empty()) {
    lines.push_back("  its error:");
    add_quoted(lines, cause.message);
  }
  if (!cause.stderr_tail.empty()) {
    lines.push_back("  the last lines of its output:");
    for (const std::string& line : cause.stderr_tail) lines.push_back(kQuote + line);
  }
  if (!cause.stderr_log.empty()) lines.push_back("  all of its stderr: " + cause.stderr_log);
  add_flight_recorders(lines, cause, all);
  return lines;
}

rendezvous::JsonObject failure_details(const JobEnd& end) {
  const WorkerFailure& cause = *end.cause;
  std::string others;
  for (const WorkerFailure* other : followers(cause, end.failures)) {
    others += (others.empty() ? "" : ", ") + details_of(*other).str();
  }
  rendezvous::JsonObject object = details_of(cause);
  object.text("program", end.program).text("meaning", describe_meaning(cause)).text("hint", cause.hint);
  object.json("stderr_tail", rendezvous::json_list(cause.stderr_tail)).text("stderr_log", cause.stderr_log);
  object.json("after_it", "[" + others + "]")
      .json("stopped_by_ddprun", numbers_json(stopped_ranks(cause, end.failures)));
  return object;
}

std::string job_report(const JobEnd& end) {
  std::string failures;
  const auto add = [&](const WorkerFailure& failure) {
    const auto file = end.round.error_files.find(failure.rank);
    rendezvous::JsonObject object = details_of(failure);
    object.json("stopped_by_ddprun", failure.stopped_by_ddprun ? "true" : "false");
    object.text("error_file", file != end.round.error_files.end() ? file->second : "");
    failures += (failures.empty() ? "" : ", ") + object.str();
  };
  if (end.cause) add(*end.cause);
  for (const WorkerFailure& failure : end.failures) {
    if (!end.cause || failure.rank != end.cause->rank) add(failure);
  }
  rendezvous::JsonObject object;
  object.text("program", end.program).number("exit_code", end.exit_code).text("reason", end.reason);
  return object.json("ranks", numbers_json(end.round.ranks)).json("failures", "[" + failures + "]").str() + "\n";
}

std::vector<std::string> coloured(std::vector<std::string> report) {
  constexpr char kRed[] = "\x1b[31m", kDim[] = "\x1b[2m", kPlain[] = "\x1b[0m";
  for (std::string& line : report) {
    const bool is_root = &line == &report.front();
    if (is_root || line.starts_with(kQuote)) line = (is_root ? kRed : kDim) + line + kPlain;
  }
  return report;
}

}  // namespace ddp::launcher
