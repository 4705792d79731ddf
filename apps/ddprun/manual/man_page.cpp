// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/manual/man_page.hpp"

#include "apps/ddprun/manual/manual.hpp"

namespace ddp::apps {

namespace {

// Escapes text so that roff shows it as it is: '-' must not become a hyphen, nor '.' at the start of a line a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else {
      out += c;
    }
  }
  return out;
}

std::string entry(const std::string& term, const std::string& text) {
  return ".TP\n.B " + roff(term) + "\n" + roff(text) + "\n";
}

}  // namespace

std::string man_page(const Options& options, const std::string& version) {
  std::string page = ".TH DDPRUN 1 \"\" \"ddprun " + version + "\" \"User Commands\"\n";
  page += std::string(".SH NAME\nddprun \\- ") + roff(manual::kSummary) + "\n";
  page += std::string(".SH SYNOPSIS\n.B ddprun\n") + roff(manual::kUsage) + "\n.SH DESCRIPTION\n";
  for (const char* paragraph : manual::kDescription) {
    if (paragraph != manual::kDescription.front()) page += ".PP\n";
    page += roff(paragraph) + "\n";
  }
  page += ".SH OPTIONS\n";
  std::string group;
  for (const Option& option : options) {
    if (option.group != group) page += ".SS " + option.group + "\n";
    group = option.group;
    page += entry(heading(option), describe(option));
  }
  page += ".SH EXAMPLES\n";
  for (const manual::Entry& example : manual::kExamples) {
    page += std::string(".PP\n") + roff(example.text) + "\n.PP\n.nf\n.RS\n" + roff(example.term) + "\n.RE\n.fi\n";
  }
  page += ".SH EXIT STATUS\n";
  for (const manual::Entry& code : manual::kExitCodes) page += entry(code.term, code.text);
  page += std::string(".PP\n") + roff(manual::kAsTorchrun) + "\n.SH ENVIRONMENT\n";
  for (const manual::Entry& variable : manual::kVariables) page += entry(variable.term, variable.text);
  return page;
}

}  // namespace ddp::apps
