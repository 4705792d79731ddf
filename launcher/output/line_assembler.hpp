// SPDX-License-Identifier: BSD-3-Clause
// Decides what a console shows of a worker's stream, and when: time and bytes go in, text comes
// out. It touches nothing.
//
//     "a\nb\n"             both lines, at once
//     "Name? "             after kPartAfter, as a part of a line; "Bob" behind it at once
//     " 1%\r 2%\r 3%"      " 3%" after kPartAfter: '\r' begins the line again, and only the newest
//                          state is shown (of prefixed lines; whole lines keep their '\r')
//
// Each line has the prefix once. If another stream has written since a part was shown, the sink has
// ended that part with a newline, and the rest of the line has the prefix again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::launcher {

class LineAssembler {
 public:
  using Clock = std::chrono::steady_clock;
  using Show = std::function<void(std::string_view)>;

  // A part of a line is shown when its first byte has waited for this time.
  static constexpr std::chrono::milliseconds kPartAfter{200};
  // A longer part is data rather than a prompt: it is shown after kPartAfter without another byte.
  static constexpr std::size_t kLongPart = 64 << 10;
  // A stream, or a write, of a multiple of kBuffer bytes most likely ends where the worker's stdio
  // buffer was full. The rest of the line follows with the next buffer, for which the part waits
  // this long.
  static constexpr std::chrono::seconds kFullBufferAfter{30};
  static constexpr std::size_t kBuffer = 4096;

  enum class Form { Whole, Prefixed };
  struct Style {
    Form form = Form::Whole;
    std::string prefix{};
    bool on_terminal = false;
    // A longer part is shown at once, which bounds the memory that a worker without newlines takes.
    std::size_t most_held = 16 << 20;
  };
  explicit LineAssembler(Style style) : style_(std::move(style)) {}

  // In all calls: `is_open` says whether the console's last text is an unfinished line of this
  // stream. `show` is called with the text to show, in order.
  void take(Clock::time_point now, std::string_view bytes, bool is_open, const Show& show);
  // Returns the time at which show_part() is to be called; nothing if no part waits.
  std::optional<Clock::time_point> due() const;
  // Shows what there is of an unfinished line.
  void show_part(bool is_open, const Show& show);

 private:
  enum class Ended { None, Some };  // whether lines ended in what was taken
  Ended take_whole(std::string_view bytes, bool is_open, const Show& show);
  Ended take_prefixed(std::string_view bytes, bool is_open, const Show& show);
  bool is_at_start_of_line() const { return held_.empty() && !has_shown_part_ && !returns_ && !is_restarted_; }
  void extend_line(std::string_view bytes);
  void restart_line();
  void end_line(bool goes_on, std::string& text, const Show& show);
  std::string before_held(bool goes_on) const;
  std::string after_held(bool goes_on) const;

  const Style style_;
  std::string held_;             // what is not shown of the current line's newest state
  bool has_shown_part_ = false;  // whether the current line has a part that was shown
  std::size_t shown_width_ = 0;  // width of that part, in characters
  bool returns_ = false;         // the last byte was '\r': half of "\r\n", or the line begins again
  bool is_restarted_ = false;    // held_ takes the place of the part that was shown
  std::uint64_t taken_ = 0;      // bytes of the stream
  std::size_t last_size_ = 0;    // bytes that were taken last
  Clock::time_point first_held_at_, last_taken_at_;
};

}  // namespace ddp::launcher
