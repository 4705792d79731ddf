// SPDX-License-Identifier: BSD-3-Clause
// Words that may be written in capitals.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launcher {

// Returns the text with its ASCII capitals as small letters.
inline std::string lower_case(std::string_view text) {
  std::string small(text);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

}  // namespace ddp::launcher
