// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Rank 0 only: what one rank does for all, such as printing or writing a file.
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

/// Returns this process's rank in its job: its rank in the first session, else what the environment
/// says (RANK, or what srun or mpirun set); 0 if nothing is set. Unlike get_rank() it needs no
/// session and never throws. Any thread may call.
inline int job_rank() noexcept { return ddp_job_rank(); }

/// Returns whether this is rank 0, or a process without a job.
inline bool is_rank_zero() noexcept { return job_rank() == 0; }

/// Calls function() on rank 0 only. Returns its result as std::optional, which is empty on the
/// other ranks. The function must not call a collective: the other ranks would not take part.
/// Source: PyTorch Lightning's rank_zero_only.
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

// The line at the bottom of stderr that is drawn again and again, and the lines that are written above it.
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
  // Leaves the line as it is; the next one is drawn below it.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!text_.empty()) put("\n");
    text_.clear();
  }
  // `lines` has whole lines.
  void write_above(const std::string& lines) {
    const std::lock_guard<std::mutex> lock(mutex_);
    put(text_.empty() ? lines : "\r" + (kRestErased + lines) + text_);
  }

 private:
  static constexpr const char* kRestErased = "\x1b[K";

  // Writes all at once, so that lines of several processes do not mix. A failure has nowhere to be reported.
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

/// Prints a line on stderr, on rank 0 only, above a ProgressBar if there is one. Any thread may
/// call.
inline void log_rank_zero(const std::string& line) {
  if (is_rank_zero()) detail::StatusLine::of_stderr().write_above(line + "\n");
}

}  // namespace ddp
