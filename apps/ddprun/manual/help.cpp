// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/manual/help.hpp"

#include <sstream>

#include "apps/ddprun/manual/manual.hpp"

namespace ddp::apps {

namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kTermWidth = 10;

std::string wrap(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  const std::string margin(indent, ' ');
  std::string out, line = margin;
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth && line.size() > indent) {
      out += line + "\n";
      line = margin;
    }
    if (line.size() > indent) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

std::string upper_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Returns, for example, "  126, 127  the program cannot be executed".
std::string code_entry(const manual::Entry& code) {
  std::string text = wrap(code.text, 2 + kTermWidth);
  const std::string term = code.term;
  return text.replace(2, term.size(), term);
}

}  // namespace

std::string help_page(const Options& options) {
  std::string page = std::string("ddprun - ") + manual::kSummary + "\n\nUSAGE\n  ddprun " + manual::kUsage + "\n";
  page += "\nDESCRIPTION\n";
  for (const char* paragraph : manual::kDescription) {
    if (paragraph != manual::kDescription.front()) page += "\n";
    page += wrap(paragraph, 2);
  }
  std::string group;
  for (const Option& option : options) {
    if (option.group != group) page += "\n" + upper_case(option.group) + "\n";
    group = option.group;
    page += "  " + heading(option) + "\n" + wrap(describe(option), kTermWidth);
  }
  page += "\nEXAMPLES\n";
  for (const manual::Entry& example : manual::kExamples) {
    page += wrap(example.text, 2) + "      " + example.term + "\n";
  }
  page += "\nEXIT CODES\n";
  for (const manual::Entry& code : manual::kExitCodes) page += code_entry(code);
  page += "\n" + wrap(manual::kAsTorchrun, 2) + "\nVARIABLES\n";
  for (const manual::Entry& variable : manual::kVariables) {
    page += std::string("  ") + variable.term + "\n" + wrap(variable.text, kTermWidth);
  }
  return page;
}

}  // namespace ddp::apps
