// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/shallow_json.hpp"

namespace ddp::rendezvous {

bool is_shallow(std::string_view text, int depth) {
  bool is_string = false;
  int open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string && c == '\\') ++i;
    if (c == '"') is_string = !is_string;
    if (is_string) continue;
    if ((c == '[' || c == '{') && ++open > depth) return false;
    if (c == ']' || c == '}') --open;
  }
  return true;
}

nlohmann::json parse_shallow(std::string_view text, int depth, const nlohmann::json::parser_callback_t& on_value) {
  if (!is_shallow(text, depth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, on_value, /*allow_exceptions=*/false);
}

}  // namespace ddp::rendezvous
