// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/json_text.hpp"

#include <nlohmann/json.hpp>

namespace ddp::launcher {

std::string quoted_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + quoted_json(text);
  return "[" + list + "]";
}

JsonObject& JsonObject::text(std::string_view name, std::string_view value) { return json(name, quoted_json(value)); }

JsonObject& JsonObject::number(std::string_view name, std::optional<std::int64_t> value) {
  return json(name, value ? std::to_string(*value) : "null");
}

JsonObject& JsonObject::json(std::string_view name, std::string_view value) {
  if (!fields_.empty()) fields_ += ", ";
  fields_.append(quoted_json(name)).append(": ").append(value);
  return *this;
}

}  // namespace ddp::launcher
