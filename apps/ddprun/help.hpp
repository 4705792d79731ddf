// SPDX-License-Identifier: BSD-3-Clause
// `ddprun --help` as a manual page: what it does, options in groups with their defaults and variables, examples, exit
// codes. Options themselves are described where they are declared, in options.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ddp::apps {

class ManualPage : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional, std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace ddp::apps
