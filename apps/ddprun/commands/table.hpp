// SPDX-License-Identifier: BSD-3-Clause
// Tables for people, on a terminal or not.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace ddp::apps {

// The first row has the headings. Columns are separated by two blanks; lines have none at their ends.
std::vector<std::string> table(const std::vector<std::vector<std::string>>& rows);

// Returns "1:02:03".
std::string clock_time(std::int64_t seconds);

// Returns other people's words so that they do nothing to a terminal: no escape sequences, no control characters.
std::string harmless(const std::string& text);

// Prints "ddprun LINE" without the escape sequences and control characters that the line may quote.
void print_line(FILE* to, const std::string& line);

}  // namespace ddp::apps
