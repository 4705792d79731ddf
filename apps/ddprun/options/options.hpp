// SPDX-License-Identifier: BSD-3-Clause
// ddprun's command line: torchrun's options in both spellings, PET_* variables, and the program with its arguments.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "apps/ddprun/invocation.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/hosts/head.hpp"
#include "launcher/output/log.hpp"

namespace ddp::apps {

struct Launch {
  launcher::LaunchConfig config;
  launcher::LogSettings log;
};
// Text for stdout, with exit code 0: --help and similar options.
struct JustPrint {
  std::string text;
};

// What to run instead of a job: the same command line on all nodes, by a program of the platform's.
struct StartOnAll {
  std::string platform;
  std::vector<std::string> command;
};

// The job runs on a list of hosts, and this ddprun is its head.
struct StartOnHosts {
  launcher::HeadConfig head;
  std::string program;
  std::string report_file;  // empty: none
};

using ParsedOptions = std::variant<Launch, JustPrint, StartOnAll, StartOnHosts>;

// Parses argv without its first word. Throws UsageError or launcher::ProgramError; nothing has been started then.
ParsedOptions parse_options(const std::vector<std::string>& arguments, const Invocation& invocation);

}  // namespace ddp::apps
