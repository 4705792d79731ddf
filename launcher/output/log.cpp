// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "launcher/output/output.hpp"
#include "launcher/text/lower_case.hpp"
#include "launcher/text/time_text.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/wire/json_text.hpp"

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

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Info:
      return "info";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Error:
      break;
  }
  return "error";
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
  const std::string lower = lower_case(name);
  if (lower == "debug" || lower == "trace") return LogLevel::Debug;
  if (lower == "info") return LogLevel::Info;
  if (lower == "warning" || lower == "warn") return LogLevel::Warning;
  if (lower == "error" || lower == "critical") return LogLevel::Error;
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          "'" + name + "' is no log level; use debug, info, warning or error");
}

LogFormat log_format_from(const std::string& name) {
  if (name == "text") return LogFormat::Text;
  if (name == "json") return LogFormat::Json;
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument, "'" + name + "' is no log format; use text or json");
}

struct Log::Logger {
  spdlog::logger logger;
  LogFormat format;
  std::string node;
  std::atomic<int> round = 0;
};

Log::Log(Output& output, const LogSettings& settings, std::string node)
    : logger_(new Logger{.logger = {"ddprun", std::make_shared<OutputSink>(output)},
                         .format = settings.format,
                         .node = std::move(node)}) {
  // Text at the default level is the bare message; with a more verbose level it has a time and the
  // level.
  const std::string pattern = settings.format == LogFormat::Json    ? "%v"
                              : settings.level >= LogLevel::Warning ? "ddprun: %v"
                                                                    : "%Y-%m-%dT%H:%M:%S.%e ddprun %l: %v";
  logger_->logger.set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::local, ""));
  logger_->logger.set_level(to_spdlog(settings.level));
}

Log::~Log() = default;

bool Log::is_for_terminal() const {
  if (logger_->format != LogFormat::Text || isatty(STDERR_FILENO) == 0) return false;
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org: set and not empty
  const char* terminal = std::getenv("TERM");
  return (!no_color || *no_color == '\0') && terminal && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

void Log::set_round(int round) { logger_->round = round; }

void Log::write(LogLevel level, const char* event, const std::string& reason, Rank rank,
                const rendezvous::JsonObject* fields) {
  if (!logger_->logger.should_log(to_spdlog(level))) return;
  if (logger_->format == LogFormat::Text) {
    std::istringstream lines(reason);
    for (std::string line; std::getline(lines, line);) logger_->logger.log(to_spdlog(level), line);
    return;
  }
  const int round = logger_->round;
  rendezvous::JsonObject line;
  line.text("time", utc_now()).text("level", name_of(level)).text("node", logger_->node);
  line.number("round", round > 0 ? std::optional<int>(round) : std::nullopt);
  line.number("rank", rank).text("event", event).text("reason", reason);
  if (fields) line.json("details", fields->str());
  logger_->logger.log(to_spdlog(level), line.str());
}

}  // namespace ddp::launcher
