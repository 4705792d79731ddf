// SPDX-License-Identifier: BSD-3-Clause
// Splits bytes into lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::launcher {

// Calls line(std::string_view line, bool ended) for each line of `text`, without its end. As Python reads text files,
// '\n', '\r' and "\r\n" all end a line; only the last one may have no end.
template <typename Line>
void for_each_line(std::string_view text, Line line) {
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    // Two searches for one character are faster than one for either, since the second stays within the line.
    const std::size_t carriage = text.substr(0, end).find('\r');
    if (carriage != std::string_view::npos) end = carriage;
    if (end == std::string_view::npos) return line(text, false);
    line(text.substr(0, end), true);
    text.remove_prefix(text.compare(end, 2, "\r\n") == 0 ? end + 2 : end + 1);
  }
}

// Returns the last `count` lines of `text` that are not empty, printable, each cut to `width` bytes with a mark. A line
// with '\r' inside (a progress bar) is reduced to what a terminal shows in the end, so that no bar pushes out what came
// before it.
std::vector<std::string> last_lines(std::string_view text, std::size_t count, std::size_t width);
// Removes from `text` what lines with '\r' inside showed before their last state.
void forget_overwritten(std::string& text);

// Returns the number of lines that end in `text`.
std::size_t count_newlines(std::string_view text);
// Returns the number of lines of `text`; the last one may have no end.
std::size_t count_lines(std::string_view text);
// Returns "1 line", "2 lines", ...
std::string lines_in_words(std::size_t count);

// Holds the beginning of a line until its end arrives, or until it is too long to be held. '\n' ends a line, and so
// does
// '\r' once it is known that no '\n' follows.
class LineHolder {
 public:
  explicit LineHolder(std::size_t max_held) : max_held_(max_held) {}

  // Calls out(std::string_view) with what may be written now: whole lines, or a piece of a line that is too long.
  template <typename Out>
  void take(std::string_view text, Out out) {
    const bool ended = !held_.empty() && held_.back() == '\r';
    if (ended && !text.empty() && text.front() != '\n') release(out);
    const std::size_t whole = end_of_lines(text);
    if (whole > 0 && held_.empty()) {
      out(text.substr(0, whole));
    } else if (whole > 0) {
      held_.append(text.substr(0, whole));
      release(out);
    }
    held_.append(text.substr(whole));
    if (held_.size() > max_held_) release(out);
  }

  // Calls out with the last line, which may have no end.
  template <typename Out>
  void finish(Out out) {
    if (!held_.empty()) release(out);
  }

 private:
  // Returns the length of the part of `text` that ends with a line's end.
  static std::size_t end_of_lines(std::string_view text) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    return text.find_last_of("\r\n") + 1;
  }

  template <typename Out>
  void release(Out out) {
    const std::string released = std::exchange(held_, {});  // its memory too: few lines are long
    out(released);
  }

  std::size_t max_held_;
  std::string held_;
};

}  // namespace ddp::launcher
