// SPDX-License-Identifier: BSD-3-Clause
// The one place where ddprun reads JSON. The library copies and writes nested values by recursion, so text that is
// nested too deeply would overflow the stack long after it was read.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ddp::rendezvous {

inline constexpr int kMaxJsonDepth = 32;  // containers within containers; ddprun's own JSON has ten

// Returns whether no bracket outside of strings is nested deeper than `depth`, be the text JSON or not.
bool is_shallow(std::string_view text, int depth);

// Returns a discarded value if the text is no JSON or nested deeper than `depth`: its at() throws json::exception, and
// it is neither an object nor an array. `on_value` is the library's callback.
nlohmann::json parse_shallow(std::string_view text, int depth = kMaxJsonDepth,
                             const nlohmann::json::parser_callback_t& on_value = nullptr);

}  // namespace ddp::rendezvous
