// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <cctype>

#include "launcher/output.hpp"
#include "rendezvous/error.hpp"

namespace ddp::launcher {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      break;
  }
  return spdlog::level::err;
}

// Hands finished lines to the output thread.
class OutputSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit OutputSink(Output& output) : output_(output) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    output_.write_line(Console::Stderr, std::string(line.data(), line.size()));
  }
  void flush_() override {}

 private:
  Output& output_;
};

}  // namespace

LogLevel log_level_from(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "debug" || lower == "trace") return LogLevel::Debug;
  if (lower == "info") return LogLevel::Info;
  if (lower == "warning" || lower == "warn") return LogLevel::Warning;
  if (lower == "error" || lower == "critical") return LogLevel::Error;
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          "'" + name + "' is no log level; use debug, info, warning or error");
}

struct Log::Logger {
  spdlog::logger logger;
};

Log::Log(Output& output, LogLevel level)
    : logger_(new Logger{spdlog::logger("ddprun", std::make_shared<OutputSink>(output))}) {
  // For a user who watches, the bare words; for one who asked for more, when they were said.
  const std::string pattern = level >= LogLevel::Warning ? "ddprun: %v" : "%Y-%m-%dT%H:%M:%S.%e ddprun %l: %v";
  logger_->logger.set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::local, ""));
  logger_->logger.set_level(to_spdlog(level));
}

Log::~Log() = default;

void Log::write(LogLevel level, const std::string& line) { logger_->logger.log(to_spdlog(level), line); }

}  // namespace ddp::launcher
