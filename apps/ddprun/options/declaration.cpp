// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/declaration.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <set>
#include <utility>

#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/text/lower_case.hpp"
#include "rendezvous/base/check.hpp"

namespace ddp::apps {

namespace {

std::string pet(const std::string& name) {
  std::string variable = "PET_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return variable;
}

}  // namespace

std::optional<bool> flag_value(std::string text) {
  text = launcher::lower_case(text);
  for (const char* yes : {"true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "no", "off"}) {
    if (text == no) return false;
  }
  const auto number = rendezvous::parse_number<int>(text);
  return number ? std::optional(*number != 0) : std::nullopt;
}

std::optional<double> seconds_from(const std::string& text) {
  if (const auto number = rendezvous::parse_number<double>(text)) return number;
  const auto time = rendezvous::parse_duration(text);
  return time ? std::optional(std::chrono::duration<double>(*time).count()) : std::nullopt;
}

Declaration::Declared& Declaration::Declared::check(Check check) {
  check_ = std::move(check);
  return *this;
}

Declaration::Declared& Declaration::Declared::variable(const std::string& name) {
  option_.variable = name;
  return *this;
}

Declaration::Declared& Declaration::Declared::ddprun_only() {
  option_.origin = Origin::Ddprun;
  return *this;
}

Declaration::Declared Declaration::add(Option option, Assign assign) {
  option.group = group_;
  option.variable = pet(option.name);
  options_.push_back(std::move(option));
  parsers_.push_back({std::move(assign), nullptr});
  return Declared(options_.back(), parsers_.back().check);
}

Declaration::Declared Declaration::flag(const std::string& name, bool& target, const std::string& help, char letter) {
  return add({.name = name, .letter = letter, .takes = Takes::Nothing, .help = help},
             [&target](const std::string& text) {
               target = flag_value(text).value_or(false);
               return true;
             })
      .check([](const std::string& text) { return flag_value(text) ? "" : "'" + text + "' is neither 0 nor 1"; });
}

Declaration::Declared Declaration::values(const std::string& name, std::vector<std::string>& target,
                                          const std::string& metavar, const std::string& help, char letter) {
  return add({.name = name, .letter = letter, .help = help, .metavar = metavar}, [&target](const std::string& text) {
    target.push_back(text);
    return true;
  });
}

Declaration::Declared Declaration::flag_with_value(const std::string& name, std::string& target,
                                                   const std::string& bare_value, const std::string& metavar,
                                                   const std::string& help, Takes takes) {
  return add({.name = name, .takes = takes, .bare_value = bare_value, .help = help, .metavar = metavar},
             [&target](const std::string& text) { return assign(text, target); });
}

void Declaration::take(std::size_t index, const std::string& text, const std::string& given_as) {
  const auto& [assign, check] = parsers_[index];
  std::string wrong = check ? check(text) : "";
  if (wrong.empty() && !assign(text)) wrong = "'" + text + "' is not a number";
  if (!wrong.empty()) throw SyntaxError(given_as + ": " + wrong);
}

void Declaration::parse(const std::vector<std::string>& words) {
  std::set<std::size_t> given;
  for (const std::string& word : words) {
    const auto equals = std::min(word.find('='), word.size());
    const auto option = std::find_if(options_.begin(), options_.end(),
                                     [&](const Option& o) { return word.compare(0, equals, "--" + o.name) == 0; });
    DDP_CHECK(option != options_.end(), word);
    const auto index = static_cast<std::size_t>(option - options_.begin());
    take(index, equals < word.size() ? word.substr(equals + 1) : "true", "--" + option->name);
    given.insert(index);
  }
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (given.contains(i) || options_[i].variable.empty()) continue;
    const char* value = getenv(options_[i].variable.c_str());
    std::string text = value ? value : "";
    text.erase(text.find_last_not_of("\r\n") + 1);  // with which files end
    if (!text.empty()) take(i, text, options_[i].variable + " (--" + options_[i].name + ")");
  }
}

}  // namespace ddp::apps
