// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/arguments.hpp"

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

constexpr char kAboutJob[] =
    "JOB is a job's id as `ddprun ps` lists it, the beginning of the id, or its PID.\n"
    "It may be left out where there is one job. `ddprun --help` says more.\n";

}  // namespace

using rendezvous::parse_duration;
using rendezvous::parse_number;

CommandArguments::CommandArguments(const CommandSyntax& syntax, const std::vector<std::string>& arguments)
    : syntax_(syntax) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.empty() || word[0] != '-' || word == "-") {
      if (word.empty()) refuse("JOB is an empty word; leave it out to mean the only job");
      if (!job_.empty()) refuse("\"" + word + "\" is too much");
      job_ = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (word == "-h" || word == "--help") {
      throw HelpAsked("usage: " + syntax_.usage + "\n" + syntax_.about + "\n" + kAboutJob);
    }
    if (syntax_.flags.contains(name)) {
      if (equals != std::string::npos) refuse(name + " takes no value");
      given_[name];
    } else if (!syntax_.values.contains(name)) {
      refuse("there is no option " + name);
    } else if (equals != std::string::npos) {
      given_[name] = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      given_[name] = arguments[++i];
    } else {
      refuse(name + " needs a value");
    }
  }
}

void CommandArguments::refuse(const std::string& why) const {
  throw SyntaxError(syntax_.name + ": " + why + " (" + syntax_.usage + ")");
}

std::optional<std::string> CommandArguments::value(const std::string& option) const {
  const auto found = given_.find(option);
  return found != given_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<std::int64_t> CommandArguments::number(const std::string& option, std::int64_t least,
                                                     const std::string& what) const {
  const auto text = value(option);
  if (!text) return std::nullopt;
  const auto number = parse_number<std::int64_t>(*text);
  if (!number || *number < least) refuse(option + " " + *text + ": " + what);
  return number;
}

std::optional<std::chrono::milliseconds> CommandArguments::duration(const std::string& option) const {
  const auto text = value(option);
  if (!text) return std::nullopt;
  const auto duration = parse_duration(*text);
  if (!duration) refuse(option + " " + *text + ": give a time such as 500ms, 30s or 5m");
  return duration;
}

}  // namespace ddp::apps
