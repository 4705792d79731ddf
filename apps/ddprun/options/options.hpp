// SPDX-License-Identifier: BSD-3-Clause
// ddprun's command line: torchrun's options in both spellings, PET_* variables, everything after the program left to
// the program. Bad input throws UsageError and nothing has been started.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "apps/ddprun/invocation.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/output/log.hpp"

namespace ddp::apps {

struct Launch {
  launcher::LaunchConfig config;
  launcher::LogSettings log;
};
// --help and its like: text for stdout, exit code 0.
struct JustPrint {
  std::string text;
};

// arguments: argv without its first. Throws UsageError or launcher::ProgramError.
std::variant<Launch, JustPrint> parse_options(const std::vector<std::string>& arguments, const Invocation& invocation);

}  // namespace ddp::apps
