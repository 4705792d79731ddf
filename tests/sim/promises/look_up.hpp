// SPDX-License-Identifier: BSD-3-Clause
// Small look-ups that the invariants share.
#pragma once

#include <optional>
#include <string>

namespace ddp::sim {

inline bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

template <typename Map, typename Key>
auto found(const Map& map, const Key& key) {
  const auto entry = map.find(key);
  return entry == map.end() ? std::nullopt : std::optional(entry->second);
}

}  // namespace ddp::sim
