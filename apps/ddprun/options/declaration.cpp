// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/declaration.hpp"

#include <algorithm>
#include <utility>

#include "apps/ddprun/options/options.hpp"

namespace ddp::apps {

namespace {

std::string pet(const std::string& name) {
  std::string variable = "PET_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return variable;
}

// A flag's variable is a number to torchrun, 0 for off. Words, which it dies of, are understood as well.
std::string flag_value(const std::string& variable, std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"true", "yes", "on"}) {
    if (text == yes) return "true";
  }
  for (const char* no : {"false", "no", "off"}) {
    if (text == no) return "false";
  }
  int number = 0;
  if (CLI::detail::lexical_cast(text, number)) return number != 0 ? "true" : "false";
  throw CLI::ValidationError("'" + text + "' in " + variable + " is neither 0 nor 1");
}

}  // namespace

Declaration::Declared& Declaration::Declared::check(const std::function<std::string(const std::string&)>& check) {
  parser_->check(check);
  return *this;
}

Declaration::Declared& Declaration::Declared::variable(const std::string& name) {
  option_.variable = name;
  parser_->envname(name);
  return *this;
}

Declaration::Declared& Declaration::Declared::own() {
  option_.origin = Origin::Ddprun;
  return *this;
}

Declaration::Declared Declaration::add(Option option, CLI::Option* parser) {
  option.group = group_;
  option.default_value = parser->get_default_str();
  options_.push_back(std::move(option));
  // If one is given twice the last counts, as in Python.
  parser->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return Declared(options_.back(), parser).variable(pet(options_.back().name));
}

Declaration::Declared Declaration::flag(const std::string& name, bool& target, const std::string& help, char letter) {
  CLI::Option* parser = app_.add_flag("--" + name, target);
  parser->transform([variable = pet(name)](const std::string& text) { return flag_value(variable, text); });
  return add({.name = name, .letter = letter, .takes = Takes::Nothing, .help = help}, parser);
}

Declaration::Declared Declaration::flag_with_value(const std::string& name, std::string& target,
                                                   const std::string& unsaid, const std::string& shown,
                                                   const std::string& help) {
  return add({.name = name, .takes = Takes::ValueIfAttached, .unsaid = unsaid, .help = help, .shown = shown},
             app_.add_option("--" + name, target));
}

void Declaration::parse(const std::vector<std::string>& words) {
  // Backwards, as CLI11 takes them; a value as a word of its own, since CLI11 takes `--role=` for one without.
  std::vector<std::string> backwards;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    const auto equals = word->find('=');
    if (equals != std::string::npos) backwards.push_back(word->substr(equals + 1));
    backwards.push_back(word->substr(0, equals));
  }
  try {
    app_.parse(std::move(backwards));
  } catch (const CLI::ParseError& error) {
    throw SyntaxError(error.what());
  }
}

}  // namespace ddp::apps
