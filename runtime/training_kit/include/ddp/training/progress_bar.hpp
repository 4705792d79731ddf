// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Progress bar: how far a loop has come, how fast it is and how long it will take, on stderr of
/// rank 0.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <sstream>
#include <string>
#include <utility>

#include "ddp/error.hpp"
#include "ddp/rank_zero.hpp"

namespace ddp {

/// Options of a ProgressBar: where it begins, and how often it prints.
struct ProgressOptions {
  /// First count, for a loop that goes on from a checkpoint.
  std::uint64_t initial = 0;
  /// Shortest time between two drawings on a terminal.
  Milliseconds redraw = Milliseconds(100);
  /// Shortest time between two lines elsewhere (a file, a pipe, ddprun's --tee).
  Milliseconds line = Milliseconds(10'000);
};

namespace detail {

struct Progress {
  const std::string& description;
  const std::string& postfix;
  std::uint64_t count;
  std::uint64_t total;    // 0: unknown
  std::uint64_t initial;  // the first count
  double seconds;
};

// "1:02:03", "02:03"
inline std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::min(std::max(seconds, 0.0), 3.6e8));
  char text[32];
  const unsigned long long hours = whole / 3600;
  const unsigned minutes = static_cast<unsigned>(whole / 60 % 60);
  const unsigned rest = static_cast<unsigned>(whole % 60);
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%llu:%02u:%02u", hours, minutes, rest);
  } else {
    std::snprintf(text, sizeof text, "%02u:%02u", minutes, rest);
  }
  return text;
}

// "34.5/s", or "2.5 s each" for slow ones
inline std::string rate_text(double per_second) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(per_second < 1000 ? 1 : 0);
  text << std::fixed << (per_second < 1 ? 1 / per_second : per_second) << (per_second < 1 ? " s each" : "/s");
  return text.str();
}

// Cuts text to at most `columns` characters, and no UTF-8 character in two.
inline void cut(std::string& text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) {
      text.resize(i);
      return;
    }
  }
}

inline std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Returns the line. With a width, a bar takes the columns that are left.
inline std::string progress_line(const Progress& p, std::size_t width) {
  std::string before = p.description.empty() ? "" : p.description + ": ";
  std::string after = std::to_string(p.count);
  const double share = p.total > 0 ? std::min(1.0, double(p.count) / double(p.total)) : 0;
  if (p.total > 0) {
    const std::string percent = std::to_string(static_cast<int>(share * 100));
    before += std::string(3 - std::min<std::size_t>(3, percent.size()), ' ') + percent + "% ";
    after += "/" + std::to_string(p.total);
  }
  after += " [" + clock_text(p.seconds);
  const auto done = static_cast<double>(p.count - std::min(p.count, p.initial));
  if (done > 0 && p.seconds > 0) {
    const double rate = done / p.seconds;
    if (p.total > p.count) after += ", " + clock_text(double(p.total - p.count) / rate) + " left";
    after += ", " + rate_text(rate);
  }
  after += "]" + (p.postfix.empty() ? "" : " " + p.postfix);
  constexpr std::size_t kLeast = 10, kMost = 60, kFrame = 3;  // columns of a bar; "[] "
  const std::size_t used = columns_of(before) + columns_of(after) + kFrame;
  if (p.total > 0 && used + kLeast <= width) {
    const std::size_t room = std::min(width - used, kMost);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(room));
    std::string bar(filled, '=');
    if (filled < room) bar += std::string(">") + std::string(room - filled - 1, ' ');
    before += "[" + bar + "] ";
  }
  std::string line = before + after;
  if (width > 0) cut(line, width);
  return line;
}

}  // namespace detail

/// A line that shows a loop's progress. On a terminal it is drawn in place, as wide as the
/// terminal, with a bar; elsewhere it is printed as a line of its own now and then, without control
/// characters. Its last state stays visible. On ranks other than 0 it does nothing.
///
///     ddp::ProgressBar progress(steps, "train");
///     for (int step = 0; step < steps; ++step) {
///       ...
///       progress.tick();
///       progress.set_postfix("loss " + std::to_string(loss));
///     }
///
///     train:  42% [=========>             ] 420/1000 [00:12, 00:17 left, 34.5/s] loss 0.123
///
/// tick() reads the clock and takes less than 100 ns, unless it draws. Lines of log_rank_zero()
/// appear above the bar. One thread at a time, one bar at a time.
class ProgressBar {
 public:
  /// Makes a bar for `total` ticks, 0 if the number is unknown, with a description before it.
  explicit ProgressBar(std::uint64_t total, std::string description = {}, const ProgressOptions& options = {})
      : total_(total),
        description_(std::move(description)),
        options_(options),
        count_(options.initial),
        speaks_(is_rank_zero()) {
    const char* kind = std::getenv("TERM");
    on_terminal_ = speaks_ && ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::strcmp(kind, "dumb") != 0);
    if (on_terminal_) draw(start_);
  }
  /// Calls finish().
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Adds to the count.
  void tick(std::uint64_t count = 1) {
    count_ += count;
    if (!speaks_) return;
    const Clock::time_point now = Clock::now();
    if (now >= next_) draw(now);
  }
  /// Sets the text after the numbers, from the next time the bar is drawn.
  void set_postfix(std::string text) {
    if (speaks_) postfix_ = std::move(text);
  }
  /// Returns the count, on every rank.
  std::uint64_t count() const { return count_; }
  /// Draws the last state and leaves it there. Afterwards the bar does nothing.
  void finish() {
    if (!speaks_) return;
    draw(Clock::now());
    if (on_terminal_) detail::StatusLine::of_stderr().leave();
    speaks_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void draw(Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const detail::Progress progress = {description_, postfix_, count_, total_, options_.initial, seconds};
    if (on_terminal_) {
      detail::StatusLine::of_stderr().show(detail::progress_line(progress, width()));
      next_ = now + options_.redraw;
    } else {
      detail::StatusLine::of_stderr().write_above(detail::progress_line(progress, 0) + "\n");
      next_ = now + options_.line;
    }
  }
  // The last column stays free: some terminals go to the next line there.
  static std::size_t width() {
    struct winsize size = {};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return static_cast<std::size_t>(known ? size.ws_col : 80) - 1;
  }

  const std::uint64_t total_;
  const std::string description_;
  const ProgressOptions options_;
  std::uint64_t count_;
  bool speaks_;
  bool on_terminal_ = false;
  std::string postfix_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + options_.line;
};

}  // namespace ddp
