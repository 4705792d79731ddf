// SPDX-License-Identifier: BSD-3-Clause
// Values as text and text as values, for messages and settings.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddp::rendezvous {

// Returns "30 s", "1.5 s" or "300 ms": from a second on rounded to tenths, so that what is left of a deadline reads as
// the deadline.
std::string to_string(std::chrono::milliseconds time);

// Returns "SIGTERM", or "signal 99" for a number without a name.
std::string signal_name(int signal);

// Returns the first `shown` of the words and how many follow: "a, b and 3 more".
std::string list_of(const std::vector<std::string>& words, std::size_t shown = SIZE_MAX);

// Returns "1 node" or "2 nodes".
inline std::string counted(std::int64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// Returns the candidate that the word is probably a misspelling of: the nearest one by single-character edits, or one
// that has all parts of the word in their order ("nproc-node" of "nproc-per-node"). Returns nothing if none is near.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& candidates);

// Returns the text without white space at its ends.
std::string_view trimmed(std::string_view text);

// Returns a size in decimal units: "999 B", "33.0 MB".
std::string describe_bytes(std::size_t bytes);

// Returns the time that a text such as "500ms", "30s", "5m", "2h" or "90" (seconds) means; nothing if it means none, or
// not more than 0, or more than 24 days, which poll() cannot wait.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// Returns this machine's name as gethostname(2) reports it.
std::string host_name();

// Returns the number that makes up the whole text, or nothing if anything else stands before or after it or if it does
// not fit. As std::from_chars: no blanks, no "+".
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = {};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  return number;
}

}  // namespace ddp::rendezvous
