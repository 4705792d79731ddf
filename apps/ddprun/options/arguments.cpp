// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/arguments.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {

namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Options of ddprun 0.2, and what does the same now.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"print-bindings", "--print bindings"},
    {"print-environment", "--print environment"},
    {"print-man", "--print man"},
    {"verbose", "--print versions (for --version --verbose)"},
};

[[noreturn]] void fail_unknown(const std::string& word, const std::string& name, const Options& known) {
  for (const auto& [old, now] : kRenamed) {
    if (name == old) throw SyntaxError("option " + word + " is gone; use " + std::string(now));
  }
  std::vector<std::string> names;
  for (const Option& option : known) names.push_back(option.name);
  std::string message = "unknown option " + word;
  if (const auto meant = rendezvous::nearest(name, names)) message += "; did you mean --" + *meant + "?";
  throw SyntaxError(message + " (the program's own options come after the program)");
}

const Option& find_long(const std::string& word, const std::string& name, const Options& known) {
  std::vector<const Option*> matches;
  for (const Option& option : known) {
    if (option.name == name) return option;
    if (!name.empty() && option.name.rfind(name, 0) == 0) matches.push_back(&option);
  }
  if (matches.empty()) fail_unknown(word, name, known);
  // A prefix that stands for one option of torchrun stays valid, whatever options ddprun has added.
  const auto is_torchruns = [](const Option* option) { return option->origin == Origin::Torchrun; };
  if (std::count_if(matches.begin(), matches.end(), is_torchruns) == 1) {
    return **std::find_if(matches.begin(), matches.end(), is_torchruns);
  }
  if (matches.size() == 1) return *matches.front();
  std::string message = "option " + word + " could mean";
  for (const Option* match : matches) message += " --" + match->name;
  throw SyntaxError(message + "; write more of it");
}

const Option& find_letter(const std::string& word, const Options& known) {
  for (const Option& option : known) {
    if (option.letter != 0 && word[1] == option.letter) return option;
  }
  fail_unknown(word, word.substr(1), known);
}

// Returns whether the word is PORT or ADDRESS:PORT, which no program is called.
bool ends_in_port(const std::string& word) {
  return rendezvous::parse_number<std::uint64_t>(word.substr(word.rfind(':') + 1)).has_value();
}

}  // namespace

Arguments split_arguments(const std::vector<std::string>& words, const Options& known) {
  Arguments result;
  bool ended_by_dashes = false;
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      ended_by_dashes = true;
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    // Find the option, and the value if it is attached.
    const bool is_long = word[1] == '-';
    std::string shown = word;
    std::optional<std::string> value;
    const Option* option = nullptr;
    if (is_long) {
      const auto equals = word.find('=');
      if (equals != std::string::npos) value = word.substr(equals + 1);
      shown = word.substr(0, equals);
      option = &find_long(shown, with_dashes(shown.substr(2)), known);
    } else {
      option = &find_letter(word, known);
      if (word.size() > 2) {
        if (option->takes == Takes::Nothing) fail_unknown(word, word.substr(1), known);
        value = word.substr(word[2] == '=' ? 3 : 2);  // -t3, -t=3
      }
    }
    // Take the value from the next word if the option needs one.
    if (option->takes == Takes::Value && !value) {
      if (i + 1 == words.size()) throw SyntaxError("option " + shown + " needs a value");
      value = words[++i];
    }
    if (option->takes == Takes::ValueIfPort && !value && i + 1 < words.size() && ends_in_port(words[i + 1])) {
      value = words[++i];
    }
    if (option->takes >= Takes::ValueIfAttached && !value) value = option->bare_value;
    if (option->takes == Takes::Nothing && value) throw SyntaxError("option " + shown + " takes no value");
    result.options.push_back("--" + option->name + (value ? "=" + *value : ""));
  }
  if (i == words.size()) return result;
  result.program = words[i++];
  // argparse counts a "--" right after the program as the end of the options, unless there was one before.
  if (!ended_by_dashes && i < words.size() && words[i] == "--") ++i;
  result.program_args.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  return result;
}

}  // namespace ddp::apps
