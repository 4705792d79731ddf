// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/pairs.hpp"

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/length_bytes.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

void PairWriter::add(std::string_view name, std::string_view value) {
  append(name);
  append(value);
}

void PairWriter::add(std::string_view name, long value) { add(name, std::to_string(value)); }

void PairWriter::append(std::string_view word) {
  rendezvous::append_length(text_, word.size());
  text_ += word;
}

void refuse_pairs(const std::string& what) { throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, what); }

std::string take_word(std::string_view& text) {
  if (text.size() < rendezvous::kLengthBytes) refuse_pairs("a pair that is cut off");
  const std::size_t length = rendezvous::length_at_begin(text);
  text.remove_prefix(rendezvous::kLengthBytes);
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
