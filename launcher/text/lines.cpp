// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/lines.hpp"

#include <algorithm>

#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {

namespace {

// Returns what a terminal shows of a line in the end, since each '\r' starts it again.
std::string_view last_state(std::string_view line) {
  line = line.substr(0, line.find_last_not_of('\r') + 1);
  return line.substr(line.rfind('\r') + 1);
}

}  // namespace

void forget_overwritten(std::string& text) {
  if (text.find('\r') == text.npos) return;  // most programs write no progress bar, and some write much
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t newline = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, newline - at);
    // The last line may continue, even after a '\r' at its end.
    kept += newline < text.size() ? last_state(line) : line.substr(line.rfind('\r', line.size() - 2) + 1);
    if (newline < text.size()) kept += '\n';
    at = newline + 1;
  }
  text = std::move(kept);
}

std::vector<std::string> last_lines(std::string_view text, std::size_t count, std::size_t width) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < count) {
    const std::size_t begin = text.rfind('\n') + 1;
    const std::string_view line = last_state(text.substr(begin));
    if (!line.empty()) lines.push_back(rendezvous::cut_line(rendezvous::printable(line), width));
    text = text.substr(0, begin == 0 ? 0 : begin - 1);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

std::size_t count_newlines(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) ++count;
  return count;
}

std::size_t count_lines(std::string_view text) {
  return count_newlines(text) + (text.empty() || text.back() == '\n' ? 0 : 1);
}

std::string lines_in_words(std::size_t count) { return std::to_string(count) + (count == 1 ? " line" : " lines"); }

}  // namespace ddp::launcher
