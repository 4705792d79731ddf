// SPDX-License-Identifier: BSD-3-Clause
// JSON objects as text, for ddprun's own log and the event log. The library behind it is seen in json_text.cpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

// "text", with its quotes; invalid UTF-8 is replaced.
std::string quoted_json(std::string_view text);

// {"name": value, ...} in the order of the calls, on one line.
class JsonObject {
 public:
  JsonObject& text(std::string_view name, std::string_view value);               // invalid UTF-8 is replaced
  JsonObject& number(std::string_view name, std::optional<std::int64_t> value);  // absent: null
  JsonObject& json(std::string_view name, std::string_view value);               // which is JSON already
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

}  // namespace ddp::launcher
