// SPDX-License-Identifier: BSD-3-Clause
// What a worker wrote, made fit for a report: a terminal shows it and does nothing else with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launcher {

// Colours and other escape sequences are left out; every other control character is shown as \x1b or \u009b, but for
// tabs and newlines; bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view bytes);

// At most `bytes` of the beginning of a line of UTF-8, and a mark if that is not all of it.
std::string cut_line(std::string line, std::size_t bytes);

}  // namespace ddp::launcher
