// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "rendezvous/base/signal_abbreviation.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {

namespace {

// Returns the number of single-character edits that lead from a to b.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

// Returns whether the parts of `word`, which dashes separate, are parts of `whole` in the same order.
bool has_parts_of(const std::string& whole, const std::string& word) {
  TextStream all(whole), wanted(word);
  std::string part, next;
  std::getline(wanted, next, '-');
  while (std::getline(all, part, '-')) {
    if (part == next && !std::getline(wanted, next, '-')) return true;
  }
  return false;
}

}  // namespace

std::string to_string(std::chrono::milliseconds time) {
  if (time.count() % 1000 == 0) return std::to_string(time.count() / 1000) + " s";
  if (time.count() < 1000) return std::to_string(time.count()) + " ms";
  const auto tenths = (time.count() + 50) / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const auto closest = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  if (closest == candidates.end()) return std::nullopt;
  const std::size_t limit = word.size() <= 4 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  if (edit_distance(word, *closest) <= limit) return *closest;
  const auto longer = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const std::string& candidate) { return has_parts_of(candidate, word); });
  return longer == candidates.end() ? std::nullopt : std::optional(*longer);
}

std::string signal_name(int signal) {
  const char* const abbreviation = signal_abbreviation(signal);
  return abbreviation ? std::string("SIG") + abbreviation : "signal " + std::to_string(signal);
}

std::string list_of(const std::vector<std::string>& words, std::size_t shown) {
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), shown); ++i) text += (i > 0 ? ", " : "") + words[i];
  if (words.size() > shown) text += " and " + std::to_string(words.size() - shown) + " more";
  return text;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  const std::int64_t scale = unit == "ms"                  ? 1
                             : unit == "s" || unit.empty() ? 1000
                             : unit == "m"                 ? 60'000
                             : unit == "h"                 ? 3'600'000
                                                           : 0;
  const auto number = parse_number<std::int64_t>(text.substr(0, digits));
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (scale == 0 || !number || *number <= 0 || *number > kMost / scale) return std::nullopt;
  return std::chrono::milliseconds(*number * scale);
}

std::string describe_bytes(std::size_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    value /= 1000;
    unit = next;
    if (value < 999.95) break;  // what would print as 1000.0
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 1);
  return std::string(text, end.ptr) + " " + unit;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace ddp::rendezvous
