// SPDX-License-Identifier: BSD-3-Clause
// ddprun's own log: single lines to stderr, through the output thread so that they never cut into a worker's line.
// spdlog is seen in log.cpp only.
#pragma once

#include <memory>
#include <string>

namespace ddp::launcher {

class Output;

enum class LogLevel { Debug, Info, Warning, Error };

// "debug", "info", "warning" (also "warn"), "error", in any case; throws rendezvous::Error naming the choices.
LogLevel log_level_from(const std::string& name);

class Log {
 public:
  // Lines below `level` are dropped. `output` outlives the log.
  Log(Output& output, LogLevel level);
  ~Log();

  void debug(const std::string& line) { write(LogLevel::Debug, line); }
  void info(const std::string& line) { write(LogLevel::Info, line); }
  void warning(const std::string& line) { write(LogLevel::Warning, line); }
  void error(const std::string& line) { write(LogLevel::Error, line); }

 private:
  void write(LogLevel level, const std::string& line);

  struct Logger;
  std::unique_ptr<Logger> logger_;
};

}  // namespace ddp::launcher
