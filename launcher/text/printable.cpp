// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/printable.hpp"

#include <cstdio>

namespace ddp::launcher {

namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD
constexpr char kCut[] = " [...]";

unsigned char byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

bool continues(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// How many bytes the character at the beginning has; 0: it is none of UTF-8 (RFC 3629, table in section 4).
std::size_t length_of_character(std::string_view text) {
  const unsigned char first = byte_at(text, 0), second = byte_at(text, 1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !continues(second)) return 0;
  if (first < 0xe0) return 2;
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (!continues(byte_at(text, 2))) return 0;
  if (first < 0xf0) return 3;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return continues(byte_at(text, 3)) ? 4 : 0;
}

// ECMA-48: ESC [ parameters final; ESC ] text BEL or ESC backslash; else ESC and one more. 0: it is none, or has no
// end.
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
      if (text[i] == '\x1b' && byte_at(text, i + 1) == '\\') return i + 2;
    }
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  char shown[8];
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    std::size_t length = length_of_character(text);
    if (first == 0x1b && length_of_escape(text) > 0) {
      length = length_of_escape(text);
    } else if (length == 0) {
      out += kReplacement;
      length = 1;
    } else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) {
      snprintf(shown, sizeof shown, "\\x%02x", first);
      out += shown;
    } else if (first == 0xc2 && byte_at(text, 1) < 0xa0) {  // the same in one byte's place: U+009B begins a sequence
      snprintf(shown, sizeof shown, "\\u%04x", byte_at(text, 1));
      out += shown;
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string cut_line(std::string line, std::size_t bytes) {
  if (line.size() <= bytes) return line;
  while (bytes > 0 && continues(static_cast<unsigned char>(line[bytes]))) --bytes;
  return line.substr(0, bytes) + kCut;
}

}  // namespace ddp::launcher
