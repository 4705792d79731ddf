// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A logger for the ranks of a job, of spdlog's. Includes spdlog (Debian: libspdlog-dev), which your build must find;
/// ddp/ddp.hpp does not include this header.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "ddp/rank_zero.hpp"

namespace ddp {

namespace detail {

class StderrAboveStatusLine final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    StatusLine::of_stderr().write_above(std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

}  // namespace detail

/// What a rank's logger says, and how.
struct RankLoggerOptions {
  /// From here on rank 0 speaks.
  spdlog::level::level_enum level = spdlog::level::info;
  /// And from here on the others.
  spdlog::level::level_enum others = spdlog::level::warn;
  /// spdlog's, for rank 0. Before the others' stands "[rank 3] ".
  std::string pattern = "%Y-%m-%d %H:%M:%S.%e %l: %v";
};

/// A logger that speaks on rank 0, and on the others only of what is serious. To stderr, above a ProgressBar if there
/// is one. Make it the program's, and add sinks as to any other:
///
///     spdlog::set_default_logger(ddp::make_rank_logger());
///     spdlog::info("epoch {}: loss {:.4f}", epoch, loss);   // rank 0
///     spdlog::warn("a bad sample: {}", path);               // whichever rank has it
inline std::shared_ptr<spdlog::logger> make_rank_logger(const RankLoggerOptions& options = {}) {
  const int rank = job_rank();
  auto logger = std::make_shared<spdlog::logger>("rank " + std::to_string(rank),
                                                 std::make_shared<detail::StderrAboveStatusLine>());
  logger->set_pattern(rank == 0 ? options.pattern : "[%n] " + options.pattern);
  logger->set_level(rank == 0 ? options.level : options.others);
  return logger;
}

}  // namespace ddp
