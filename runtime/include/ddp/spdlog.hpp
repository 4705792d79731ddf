// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// spdlog: a logger for the ranks of a job. Includes spdlog (Debian: libspdlog-dev), which your
/// build must find; so ddp/ddp.hpp does not include this header.
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

/// Options of make_rank_logger().
struct RankLoggerOptions {
  /// Lowest level that rank 0 logs.
  spdlog::level::level_enum level = spdlog::level::info;
  /// Lowest level that the other ranks log.
  spdlog::level::level_enum others = spdlog::level::warn;
  /// Pattern of spdlog for rank 0. On other ranks "[rank 3] " comes before it.
  std::string pattern = "%Y-%m-%d %H:%M:%S.%e %l: %v";
};

/// Makes a logger that logs everything on rank 0, and only warnings and errors on the others. It
/// writes to stderr, above a ProgressBar if there is one. Make it the program's default, and add
/// sinks as to any other logger:
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
