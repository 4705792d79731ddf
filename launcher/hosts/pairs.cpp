// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/pairs.hpp"

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

void PairWriter::add(std::string_view name, std::string_view value) {
  append(name);
  append(value);
}

void PairWriter::add(std::string_view name, long value) { add(name, std::to_string(value)); }

void PairWriter::append(std::string_view word) {
  for (int shift = 24; shift >= 0; shift -= 8) text_ += static_cast<char>((word.size() >> shift) & 0xff);
  text_ += word;
}

void refuse_pairs(const std::string& what) { throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, what); }

std::string take_word(std::string_view& text) {
  std::size_t length = 0;
  if (text.size() < 4) refuse_pairs("a pair that is cut off");
  for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
  text.remove_prefix(4);
  if (length > text.size()) refuse_pairs("a word of " + std::to_string(length) + " bytes, of which not all are there");
  std::string word(text.substr(0, length));
  text.remove_prefix(length);
  if (word.find('\0') != std::string::npos) refuse_pairs("a word with a NUL in it");
  return word;
}

int number_of(const std::string& name, const std::string& text, int low, int high) {
  const auto number = rendezvous::parse_number<int>(text);
  if (number && *number >= low && *number <= high) return *number;
  refuse_pairs("the value \"" + text + "\" of " + name + ", which is not a number from " + std::to_string(low) +
               " to " + std::to_string(high));
}

std::string variable_of(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse_pairs("a variable without a name");
  return text;
}

}  // namespace ddp::launcher
