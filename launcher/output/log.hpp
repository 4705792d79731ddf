// SPDX-License-Identifier: BSD-3-Clause
// ddprun's own log: what happened, one line each, to stderr, through the output thread so that it never cuts into a
// worker's line. As text for people, or as JSON for programs:
//
//     ddprun: train.py failed: rank 0 on node a exited with code 3
//     {"time": "2026-11-21T19:28:00.123Z", "level": "error", "node": "a", "round": 1, "rank": 0,
//      "event": "job_failed", "reason": "train.py failed: ...", "details": {...}}       (on one line)
//
// Any thread may write. spdlog is seen in log.cpp only.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace ddp::launcher {

class JsonObject;
class Output;

enum class LogLevel { Debug, Info, Warning, Error };
enum class LogFormat { Text, Json };

// "debug", "info", "warning" (also "warn"), "error", in any case; throws rendezvous::Error naming the choices.
LogLevel log_level_from(const std::string& name);
// "text", "json"; throws likewise.
LogFormat log_format_from(const std::string& name);

struct LogSettings {
  LogLevel level = LogLevel::Warning;  // what is below is dropped
  LogFormat format = LogFormat::Text;
};

class Log {
 public:
  // event: its kind, for programs, one of few: "worker_exited". reason: in words, maybe several lines; rank: whom it is
  // about, if it is one worker.
  using Rank = std::optional<int>;

  // `output` is there when the first line is written.
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
  // A program gets `fields` as well.
  void error(const char* event, const std::string& reason, Rank rank, const JsonObject& fields) {
    write(LogLevel::Error, event, reason, rank, &fields);
  }

  // Its text is read on a terminal that shows colours, by somebody who has not asked for none (NO_COLOR).
  bool is_for_terminal() const;

  // Of what is written from now on; 0: none yet.
  void set_round(int round);

 private:
  void write(LogLevel level, const char* event, const std::string& reason, Rank rank,
             const JsonObject* fields = nullptr);

  struct Logger;
  std::unique_ptr<Logger> logger_;
};

}  // namespace ddp::launcher
