// SPDX-License-Identifier: BSD-3-Clause
// Pairs of a name and a value, each behind its length in 4 bytes, the highest first: the form of what the head tells a
// host, and a host tells of itself.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launcher {

class PairWriter {
 public:
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, long value);
  std::string take() { return std::move(text_); }

 private:
  void append(std::string_view word);

  std::string text_;
};

// The following throw rendezvous::Error with what is wrong.

[[noreturn]] void refuse_pairs(const std::string& what);

// Takes the next word, a name or a value, off the text. A word has no NUL.
std::string take_word(std::string_view& text);

// Returns the number that is the value of `name`.
int number_of(const std::string& name, const std::string& text, int low, int high);

// Returns the text, which must be "NAME=value".
std::string variable_of(const std::string& text);

}  // namespace ddp::launcher
