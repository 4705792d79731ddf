// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/table.hpp"

#include <algorithm>
#include <array>

#include "rendezvous/link/printable.hpp"

namespace ddp::apps {
namespace {

// Returns how many columns a text takes on a terminal, as far as each character takes one.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::vector<std::string> table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width_of(row[i]) + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

std::string clock_time(std::int64_t seconds) {
  std::array<char, 40> text;
  snprintf(text.data(), text.size(), "%lld:%02d:%02d", static_cast<long long>(seconds / 3600),
           static_cast<int>(seconds / 60 % 60), static_cast<int>(seconds % 60));
  return text.data();
}

std::string harmless(const std::string& text) { return rendezvous::printable_line(text); }

void print_line(FILE* to, const std::string& line) {
  fprintf(to, "ddprun %s\n", rendezvous::printable(line).c_str());
  fflush(to);
}

}  // namespace ddp::apps
