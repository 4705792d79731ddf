// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/wire/json_text.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ddp::rendezvous {

std::string quoted_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + quoted_json(text);
  return "[" + list + "]";
}

std::string as_characters(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text.append({static_cast<char>(0xc0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3f))});
    }
  }
  return text;
}

std::string from_characters(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first == 0) throw std::range_error("a word with a NUL in it");
    if (first < 0x80) {
      bytes += text[i];
    } else if ((first == 0xc2 || first == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>((first & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
    } else {
      throw std::range_error("a character that is no byte");
    }
  }
  return bytes;
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

}  // namespace ddp::rendezvous
