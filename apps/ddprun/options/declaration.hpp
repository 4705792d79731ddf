// SPDX-License-Identifier: BSD-3-Clause
// Where options are declared: each once, with its name, variable, type, group and help.
//
//     Declaration d;
//     d.group("Workers");
//     d.value("role", role, "NAME", "Role of the workers.");
//     d.value("max-restarts", max_restarts, "N", "Number of restarts ...").check(kCount);
//     d.parse({"--role=trainer"});   // and from PET_ROLE, PET_MAX_RESTARTS
#pragma once

#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/ddprun/options/option.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {

// Parses a flag's variable. For torchrun it is a number, 0 for off; words, which are an error there, are accepted too.
std::optional<bool> flag_value(std::string text);

// Returns the seconds that a text such as "0.5", "90s", "500ms", "5m" or "2h" means.
std::optional<double> seconds_from(const std::string& text);

class Declaration {
 public:
  // Returns what is wrong with a value; empty if nothing is.
  using Check = std::function<std::string(const std::string&)>;

  // Adds to an option what its name and type do not say; to be used before the next option is declared.
  class Declared {
   public:
    Declared(Option& option, Check& check) : option_(option), check_(check) {}
    Declared& check(Check check);
    // Names the variable that holds the default instead of PET_<NAME>; empty: none does.
    Declared& variable(const std::string& name);
    // Marks an option that torchrun does not have.
    Declared& ddprun_only();

   private:
    Option& option_;
    Check& check_;
  };

  void group(const std::string& name) { group_ = name; }

  // Declares an option with a value; what `target` holds now is the default.
  template <typename T>
  Declared value(const std::string& name, T& target, const std::string& metavar, const std::string& help,
                 char letter = 0) {
    return add({.name = name, .letter = letter, .help = help, .metavar = metavar, .default_value = to_text(target)},
               [&target](const std::string& text) { return assign(text, target); });
  }

  // Declares an option that is a time, and whose target is a number of seconds.
  template <typename Seconds>
  Declared time(const std::string& name, Seconds& target, const std::string& help) {
    return add({.name = name, .help = help, .metavar = "TIME", .default_value = to_text(target)},
               [&target](const std::string& text) {
                 const auto seconds = seconds_from(text);
                 if (seconds) target = static_cast<Seconds>(*seconds);
                 return seconds.has_value();
               });
  }

  // Declares an option that may be given several times.
  Declared values(const std::string& name, std::vector<std::string>& target, const std::string& metavar,
                  const std::string& help, char letter = 0);

  // Declares an option without a value.
  Declared flag(const std::string& name, bool& target, const std::string& help, char letter = 0);

  // Declares an option that may stand alone, and means `bare_value` then.
  Declared flag_with_value(const std::string& name, std::string& target, const std::string& bare_value,
                           const std::string& metavar, const std::string& help, Takes takes = Takes::ValueIfAttached);

  const Options& options() const { return options_; }

  // Fills the targets from words such as --name=value and --name, with full names, and for options without a word from
  // their variables. If an option is given twice the last one counts, as in Python, except
  // for values(). Throws SyntaxError.
  void parse(const std::vector<std::string>& words);

 private:
  // Converts text and stores it in the option's target; false if it is not of that type.
  using Assign = std::function<bool(const std::string&)>;
  struct Parser {
    Assign assign;
    Check check;
  };

  template <typename T>
  static bool assign(const std::string& text, T& target) {
    if constexpr (std::is_arithmetic_v<T>) {
      const auto number = rendezvous::parse_number<T>(text);
      if (number) target = *number;
      return number.has_value();
    } else {
      target = text;
      return true;
    }
  }
  template <typename T>
  static bool assign(const std::string& text, std::optional<T>& target) {
    return assign(text, target.emplace());
  }

  template <typename T>
  static std::string to_text(const T& value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }
  template <typename T>
  static std::string to_text(const std::optional<T>& value) {
    return value ? to_text(*value) : "";
  }

  Declared add(Option option, Assign assign);
  void take(std::size_t index, const std::string& text, const std::string& given_as);

  std::string group_;
  Options options_;
  std::vector<Parser> parsers_;  // in the order of options_
};

}  // namespace ddp::apps
