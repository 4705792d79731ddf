// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/option.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace ddp::apps {

std::string heading(const Option& option) {
  std::string text = option.letter ? std::string("-") + option.letter + ", " : "";
  text += "--" + option.name;
  if (option.takes == Takes::Value) text += " " + option.metavar;
  if (option.takes == Takes::ValueIfAttached || option.takes == Takes::ValueIfPort) text += "[=" + option.metavar + "]";
  return text;
}

std::string describe(const Option& option) {
  std::string text = option.help;
  if (!option.default_value.empty()) text += " Default: " + option.default_value + ".";
  if (!option.variable.empty()) text += " [" + option.variable + "]";
  return text;
}

std::vector<std::string> choices(const Option& option) {
  std::vector<std::string> words;
  std::istringstream parts(option.metavar);
  for (std::string part; std::getline(parts, part, '|');) {
    const bool is_word = std::all_of(part.begin(), part.end(),
                                     [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '-'; });
    if (is_word) words.push_back(part);
  }
  return words;
}

}  // namespace ddp::apps
