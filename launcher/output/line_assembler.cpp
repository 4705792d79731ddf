// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/line_assembler.hpp"

#include <algorithm>

namespace ddp::launcher {

namespace {

constexpr auto npos = std::string_view::npos;

// Returns the number of characters of UTF-8 text: of bytes that do not continue a character.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Removes ANSI control sequences that move the cursor, as nested progress bars write them: between the lines of other
// ranks they lead to others' lines. Colours (m) and the erasure of a line (K) stay.
std::string without_cursor_moves(std::string_view text) {
  std::string kept;
  for (std::size_t escape; (escape = text.find("\x1b[")) != npos;) {
    const std::size_t end = text.find_first_not_of("0123456789;?", escape + 2);
    if (end == npos) break;
    const bool stays = text[end] == 'm' || text[end] == 'K';
    kept += text.substr(0, stays ? end + 1 : escape);
    text.remove_prefix(end + 1);
  }
  return kept.append(text);
}

}  // namespace

void LineAssembler::take(Clock::time_point now, std::string_view bytes, bool is_open, const Show& show) {
  if (bytes.empty()) return;
  const bool held_none = held_.empty();
  const Ended ended =
      style_.form == Form::Whole ? take_whole(bytes, is_open, show) : take_prefixed(bytes, is_open, show);
  taken_ += bytes.size();
  last_size_ = bytes.size();
  last_taken_at_ = now;
  if (held_none || ended == Ended::Some) first_held_at_ = now;
  // What continues a part at the console's end, such as the echo of a key at a prompt, does not wait.
  const bool goes_on = is_open && ended == Ended::None;
  const bool continues_part = goes_on && has_shown_part_ && !is_restarted_;
  if (continues_part || held_.size() > style_.most_held) show_part(goes_on, show);
}

std::optional<LineAssembler::Clock::time_point> LineAssembler::due() const {
  if (held_.empty()) return std::nullopt;
  if (taken_ % kBuffer == 0 || last_size_ % kBuffer == 0) return last_taken_at_ + kFullBufferAfter;
  return (held_.size() > kLongPart ? last_taken_at_ : first_held_at_) + kPartAfter;
}

void LineAssembler::show_part(bool is_open, const Show& show) {
  if (held_.empty()) return;
  const bool goes_on = has_shown_part_ && is_open;
  const std::string lead = before_held(goes_on), padding = after_held(goes_on);
  const std::string part = std::exchange(held_, {});  // its memory too: few parts are long
  shown_width_ = width_of(part) + (goes_on && !is_restarted_ ? shown_width_ : 0);
  has_shown_part_ = true;
  is_restarted_ = false;
  if (part.size() <= kLongPart) return show(lead + part + padding);
  if (!lead.empty()) show(lead);
  show(part);
  if (!padding.empty()) show(padding);
}

LineAssembler::Ended LineAssembler::take_whole(std::string_view bytes, bool is_open, const Show& show) {
  const bool was_ended_by_another = has_shown_part_ && held_.empty() && !is_open;
  if (was_ended_by_another && bytes.front() == '\n') {
    bytes.remove_prefix(1);
    has_shown_part_ = false;
  }
  const std::size_t end = style_.on_terminal ? bytes.find_last_of("\r\n") : bytes.rfind('\n');
  const std::string_view whole = bytes.substr(0, end + 1);  // npos + 1 is 0
  if (!whole.empty() && held_.empty()) {
    show(whole);
  } else if (!whole.empty()) {
    held_ += whole;
    show(std::exchange(held_, {}));
  }
  held_ += bytes.substr(whole.size());
  if (whole.empty()) return Ended::None;
  has_shown_part_ = false;
  return Ended::Some;
}

LineAssembler::Ended LineAssembler::take_prefixed(std::string_view bytes, bool is_open, const Show& show) {
  Ended ended = Ended::None;
  std::string kept;
  if (style_.on_terminal && bytes.find('\x1b') != npos) bytes = kept = without_cursor_moves(bytes);
  thread_local std::string text;  // whole lines, which are shown together; its memory is kept
  text.clear();
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::string_view line = bytes.substr(0, newline);
    if (newline == npos) {
      extend_line(line);
      break;
    }
    bytes.remove_prefix(newline + 1);
    if (is_at_start_of_line() && line.size() <= kLongPart && line.find('\r') == npos) {
      text.append(style_.prefix).append(line).push_back('\n');
    } else {
      extend_line(line);
      end_line(has_shown_part_ && is_open && ended == Ended::None, text, show);
    }
    ended = Ended::Some;
  }
  if (!text.empty()) show(text);
  return ended;
}

// `bytes` have no newline.
void LineAssembler::extend_line(std::string_view bytes) {
  const std::size_t end = bytes.find_last_not_of('\r') + 1;
  if (end == 0) {
    returns_ = returns_ || !bytes.empty();
    return;
  }
  if (returns_) restart_line();
  returns_ = end < bytes.size();
  bytes = bytes.substr(0, end);
  if (bytes.find('\r') != npos) {  // faster than rfind() where there is none
    restart_line();
    bytes.remove_prefix(bytes.rfind('\r') + 1);
  }
  held_ += bytes;
}

void LineAssembler::restart_line() {
  held_.clear();
  is_restarted_ = true;
}

void LineAssembler::end_line(bool goes_on, std::string& text, const Show& show) {
  if (has_shown_part_ && held_.empty()) {
    if (goes_on) text += '\n';  // else another stream's line has ended this one
  } else {
    text += before_held(goes_on);
    if (held_.size() > kLongPart) {  // long lines are not copied again
      if (!text.empty()) show(text);
      text.clear();
      show(held_);
    } else {
      text += held_;
    }
    text += after_held(goes_on);
    text += '\n';
  }
  held_ = {};
  has_shown_part_ = returns_ = is_restarted_ = false;
}

// Returns the prefix, and what makes the line begin again.
std::string LineAssembler::before_held(bool goes_on) const {
  if (!goes_on) return style_.prefix;
  if (!is_restarted_) return "";
  return (style_.on_terminal ? "\r" : "\n") + style_.prefix;
}

// Returns spaces over the end of a longer state that the terminal shows.
std::string LineAssembler::after_held(bool goes_on) const {
  if (!goes_on || !is_restarted_ || !style_.on_terminal) return "";
  const std::size_t width = width_of(held_);
  return std::string(shown_width_ - std::min(shown_width_, width), ' ');
}

}  // namespace ddp::launcher
