// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/template.hpp"

namespace ddp::launcher {

namespace {

// Returns the length of the name at `at`: a letter or '_', then letters, digits and '_', in ASCII as in Python.
std::size_t name_length(const std::string& text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size()) {
    const char c = text[end];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !(digit && end > at)) break;
    ++end;
  }
  return end - at;
}

}  // namespace

std::string substitute(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "$$") == 0) {
      out += '$';
      i += 2;
      continue;
    }
    if (text[i] == '$') {
      const std::size_t braces = text.compare(i, 2, "${") == 0 ? 1 : 0;
      const std::size_t begin = i + 1 + braces;
      const std::size_t length = name_length(text, begin);
      const bool closed = braces == 0 || text.compare(begin + length, 1, "}") == 0;
      const auto value = values.find(text.substr(begin, length));
      if (closed && value != values.end()) {
        out += value->second;
        i = begin + length + braces;
        continue;
      }
    }
    out += text[i++];
  }
  return out;
}

}  // namespace ddp::launcher
