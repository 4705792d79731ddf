// SPDX-License-Identifier: BSD-3-Clause
// Where options are declared: each once, with its name, variable, type, group and help. Converts and checks with CLI11,
// which is seen here and in given_options.cpp only.
//
//     Declaration d;
//     d.group("Workers");
//     d.value("role", role, "NAME", "Role of the workers.");
//     d.value("max-restarts", max_restarts, "N", "How often ...").check(kCount);
//     d.parse({"--role=trainer"});   // and from PET_ROLE, PET_MAX_RESTARTS
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/ddprun/options/option.hpp"

namespace ddp::apps {

class Declaration {
 public:
  // What is said of an option beyond its name and type; to be used before the next one is declared.
  class Declared {
   public:
    Declared(Option& option, CLI::Option* parser) : option_(option), parser_(parser) {}
    // The check answers with what is wrong, or with nothing.
    Declared& check(const std::function<std::string(const std::string&)>& check);
    // PET_<NAME> is the default; empty: none.
    Declared& variable(const std::string& name);
    // torchrun has no such option.
    Declared& own();

   private:
    Option& option_;
    CLI::Option* parser_;
  };

  Declaration() { app_.set_help_flag(); }

  void group(const std::string& name) { group_ = name; }

  template <typename T>
  Declared value(const std::string& name, T& target, const std::string& shown, const std::string& help,
                 char letter = 0) {
    CLI::Option* parser = app_.add_option("--" + name, target)->capture_default_str();
    return add({.name = name, .letter = letter, .help = help, .shown = shown}, parser);
  }

  Declared flag(const std::string& name, bool& target, const std::string& help, char letter = 0);

  // May stand alone, and means `unsaid` then.
  Declared flag_with_value(const std::string& name, std::string& target, const std::string& unsaid,
                           const std::string& shown, const std::string& help);

  const Options& options() const { return options_; }

  // words: --name=value or --name, full names. Fills the targets; throws SyntaxError.
  void parse(const std::vector<std::string>& words);

 private:
  Declared add(Option option, CLI::Option* parser);

  CLI::App app_;
  std::string group_;
  Options options_;
};

}  // namespace ddp::apps
