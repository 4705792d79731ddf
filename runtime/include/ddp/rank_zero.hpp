// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What one rank does for all: printing, writing a file, showing progress.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "ddp/ddp.h"

namespace ddp {

/// This process's rank in its job: its first session's, else as the environment says (RANK, or what srun or mpirun
/// set); 0 if nothing does. Unlike get_rank() it asks for no session, and never throws. From any thread.
inline int job_rank() noexcept { return ddp_job_rank(); }

/// Is this rank 0, or a process without a job?
inline bool is_rank_zero() noexcept { return job_rank() == 0; }

/// Calls function() on rank 0 and nowhere else. Returns what it returns, as std::optional, which is empty on the
/// others. There must be no collective in it: nobody else would come. Source: PyTorch Lightning's rank_zero_only.
///
///     ddp::rank_zero_only([&] { save(model, "model.bin"); });
template <typename Function>
auto rank_zero_only(Function&& function) {
  using Result = std::invoke_result_t<Function&&>;
  if constexpr (std::is_void_v<Result>) {
    if (is_rank_zero()) std::forward<Function>(function)();
  } else {
    std::optional<std::decay_t<Result>> result;
    if (is_rank_zero()) result.emplace(std::forward<Function>(function)());
    return result;
  }
}

namespace detail {

// What is drawn over and over at the bottom of stderr, and the lines that are written above it meanwhile.
class StatusLine {
 public:
  static StatusLine& of_stderr() {
    static StatusLine line;
    return line;
  }
  void show(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ = text;
    put("\r" + text_ + kRestErased);
  }
  // It stays as it is, and is nobody's any more.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!text_.empty()) put("\n");
    text_.clear();
  }
  // lines: whole ones.
  void write_above(const std::string& lines) {
    const std::lock_guard<std::mutex> lock(mutex_);
    put(text_.empty() ? lines : "\r" + (kRestErased + lines) + text_);
  }

 private:
  static constexpr const char* kRestErased = "\x1b[K";

  // At once, so that lines of several processes do not mix. Who cannot be written to is not told either.
  static void put(const std::string& text) {
    const char* from = text.data();
    const char* const end = from + text.size();
    while (from < end) {
      const ::ssize_t written = ::write(STDERR_FILENO, from, static_cast<std::size_t>(end - from));
      if (written <= 0) return;
      from += written;
    }
  }

  std::mutex mutex_;
  std::string text_;  // empty: there is none
};

}  // namespace detail

/// A line on stderr, on rank 0 only; above a ProgressBar if there is one. From any thread. For levels, times and files
/// there is ddp/spdlog.hpp.
inline void log_rank_zero(const std::string& line) {
  if (is_rank_zero()) detail::StatusLine::of_stderr().write_above(line + "\n");
}

}  // namespace ddp
