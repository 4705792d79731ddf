// SPDX-License-Identifier: BSD-3-Clause
// ddprun's own log, one line for each event, on stderr. Lines go through the output thread, so that
// they never split a worker's line. The format is text for people, or JSON for programs:
//
//     ddprun: train.py failed: rank 0 on node a exited with code 3
//     {"time": "2026-11-21T19:28:00.123Z", "level": "error", "node": "a", "round": 1, "rank": 0,
//      "event": "job_failed", "reason": "train.py failed: ...", "details": {...}}       (on one line)
//
// Any thread may write. Only log.cpp includes spdlog.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ddp::rendezvous {
class JsonObject;
}

namespace ddp::launcher {

class Output;

enum class LogLevel { Debug, Info, Warning, Error };
enum class LogFormat { Text, Json };

// Parses "debug", "info", "warning" (also "warn") or "error", in any case. Throws
// rendezvous::Error, which names the choices.
LogLevel log_level_from(const std::string& name);
// Parses "text" or "json". Throws rendezvous::Error, which names the choices.
LogFormat log_format_from(const std::string& name);

struct LogSettings {
  LogLevel level = LogLevel::Warning;  // lines below this level are dropped
  LogFormat format = LogFormat::Text;
};

class Log {
 public:
  // In all calls: `event` is the kind of event, for programs, such as "worker_exited". `reason` is
  // a sentence, or several lines. `rank` is the worker it is about, if it is about one.
  using Rank = std::optional<int>;

  // `output` must exist when the first line is written, and may be constructed later than the log.
  Log(Output& output, const LogSettings& settings, std::string node);
  ~Log();

  void debug(const char* event, const std::string& reason, Rank rank = {}) {
    write(LogLevel::Debug, event, reason, rank);
  }
  void info(const char* event, const std::string& reason, Rank rank = {}) {
    write(LogLevel::Info, event, reason, rank);
  }
  void warning(const char* event, const std::string& reason, Rank rank = {}) {
    write(LogLevel::Warning, event, reason, rank);
  }
  void error(const char* event, const std::string& reason, Rank rank = {}) {
    write(LogLevel::Error, event, reason, rank);
  }
  // Log to a JSON line that `fields` are added to as "details".
  void warning(const char* event, const std::string& reason, Rank rank, const rendezvous::JsonObject& fields) {
    write(LogLevel::Warning, event, reason, rank, &fields);
  }
  void error(const char* event, const std::string& reason, Rank rank, const rendezvous::JsonObject& fields) {
    write(LogLevel::Error, event, reason, rank, &fields);
  }

  // Returns whether the log is text on a terminal that shows colours, and the user has not set
  // NO_COLOR.
  bool is_for_terminal() const;

  // Sets the round of the lines that follow; 0 before the first round.
  void set_round(int round);

 private:
  void write(LogLevel level, const char* event, const std::string& reason, Rank rank,
             const rendezvous::JsonObject* fields = nullptr);

  struct Logger;
  std::unique_ptr<Logger> logger_;
};

}  // namespace ddp::launcher
