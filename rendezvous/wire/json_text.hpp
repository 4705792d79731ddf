// SPDX-License-Identifier: BSD-3-Clause
// JSON objects as text. Only json_text.cpp includes the library behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::rendezvous {

// Returns the text as a JSON string, with its quotes; invalid UTF-8 is replaced.
std::string quoted_json(std::string_view text);
// Returns a JSON list of such strings.
std::string json_list(const std::vector<std::string>& texts);

// Return bytes as text of UTF-8, each as the character of its number, and back. from_characters() throws
// std::range_error if the text has another character, or NUL.
std::string as_characters(std::string_view bytes);
std::string from_characters(std::string_view text);

// Builds {"name": value, ...} on one line, in the order of the calls.
class JsonObject {
 public:
  JsonObject& text(std::string_view name, std::string_view value);               // invalid UTF-8 is replaced
  JsonObject& number(std::string_view name, std::optional<std::int64_t> value);  // absent: null
  JsonObject& json(std::string_view name, std::string_view value);               // `value` is JSON already
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

}  // namespace ddp::rendezvous
