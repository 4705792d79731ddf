// SPDX-License-Identifier: BSD-3-Clause
// Makes what a worker or another node wrote safe to show: a terminal displays it and does nothing else with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::rendezvous {

// Returns the bytes as UTF-8 without colours and other escape sequences. Control characters other than tab and newline,
// and characters that turn the direction of the text around them, are shown as \x1b, \u009b or \u202e; each byte that
// is not UTF-8 becomes U+FFFD.
std::string printable(std::string_view bytes);

// Returns printable(bytes) as one line: a newline is shown as \x0a.
std::string printable_line(std::string_view bytes);

// Returns at most `bytes` of the beginning of a line of UTF-8, in whole characters, and a mark if that is not all of
// it.
std::string cut_line(std::string line, std::size_t bytes);

}  // namespace ddp::rendezvous
