// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/lines.hpp"

#include <algorithm>

namespace ddp::launcher {

std::vector<std::string> last_lines(std::string_view text, std::size_t count, std::size_t width) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < count) {
    const std::size_t begin = text.find_last_of("\r\n") + 1;
    if (begin < text.size()) lines.emplace_back(text.substr(begin, width));
    text = text.substr(0, begin == 0 ? 0 : begin - 1);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace ddp::launcher
