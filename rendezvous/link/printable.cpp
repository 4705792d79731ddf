// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/printable.hpp"

#include <utf8.h>

#include <cstdio>

namespace ddp::rendezvous {

namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD
constexpr char kCut[] = " [...]";

unsigned char byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

// Returns the text with each byte that belongs to no character of UTF-8 replaced.
std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (true) {
    const auto good = static_cast<std::size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
    valid.append(text.substr(0, good));
    if (good == text.size()) return valid;
    valid += kReplacement;
    text.remove_prefix(good + 1);
  }
}

// Returns the length of the escape sequence (ECMA-48) at the beginning of the text: ESC [ parameters final, or ESC ]
// text BEL or ESC backslash. 0 if there is none, or it has no end.
std::size_t length_of_escape(std::string_view text) {
  const unsigned char kind = byte_at(text, 1);
  if (kind == '[') {
    std::size_t end = 2;
    while (byte_at(text, end) >= 0x20 && byte_at(text, end) < 0x40) ++end;
    return byte_at(text, end) >= 0x40 && byte_at(text, end) < 0x7f ? end + 1 : 0;
  }
  if (kind == ']') {
    for (std::size_t i = 2; i < text.size() && text[i] != '\n'; ++i) {
      if (text[i] == '\a') return i + 1;
      // Another sequence ends it, as in a terminal, so that thousands of beginnings are not read to the end each.
      if (text[i] == '\x1b') return byte_at(text, i + 1) == '\\' ? i + 2 : 0;
    }
  }
  return 0;
}

// Returns whether the text begins with a character that turns the direction of the text around it, and so would show
// the words of a report in another order: U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069.
bool turns_text(std::string_view text) {
  const unsigned char first = byte_at(text, 0), second = byte_at(text, 1), third = byte_at(text, 2);
  if (first == 0xd8) return second == 0x9c;
  if (first != 0xe2) return false;
  if (second == 0x80) return third == 0x8e || third == 0x8f || (third >= 0xaa && third <= 0xae);
  return second == 0x81 && third >= 0xa6 && third <= 0xa9;
}

std::string made_printable(std::string_view bytes, bool keep_newlines) {
  const std::string valid = valid_utf8(bytes);
  std::string out;
  out.reserve(valid.size());
  char shown[8];
  for (std::string_view text = valid; !text.empty();) {
    const unsigned char first = byte_at(text, 0), second = byte_at(text, 1);
    std::size_t length = 1;
    if (first == 0x1b && length_of_escape(text) > 0) {
      length = length_of_escape(text);
    } else if ((first < 0x20 && !(first == '\n' && keep_newlines) && first != '\t') || first == 0x7f) {
      snprintf(shown, sizeof shown, "\\x%02x", first);
      out += shown;
    } else if (first == 0xc2 && second < 0xa0) {  // control characters of two bytes: U+009B begins a sequence too
      snprintf(shown, sizeof shown, "\\u%04x", second);
      out += shown;
      length = 2;
    } else if (turns_text(text)) {
      const auto* end = text.begin();
      snprintf(shown, sizeof shown, "\\u%04x", static_cast<unsigned>(utf8::next(end, text.end())));
      out += shown;
      length = static_cast<std::size_t>(end - text.begin());
    } else {
      out += text.front();
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view bytes) { return made_printable(bytes, true); }

std::string printable_line(std::string_view bytes) { return made_printable(bytes, false); }

std::string cut_line(std::string line, std::size_t bytes) {
  if (line.size() <= bytes) return line;
  const auto limit = line.begin() + static_cast<std::ptrdiff_t>(bytes);
  line.erase(utf8::find_invalid(line.begin(), limit), line.end());  // also what the limit leaves of a character
  return line + kCut;
}

}  // namespace ddp::rendezvous
