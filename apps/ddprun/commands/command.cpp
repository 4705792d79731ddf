// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/command.hpp"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/change/chaos.hpp"
#include "apps/ddprun/commands/change/stop.hpp"
#include "apps/ddprun/commands/show/logs.hpp"
#include "apps/ddprun/commands/show/ps.hpp"
#include "apps/ddprun/commands/show/report.hpp"
#include "apps/ddprun/commands/show/stacks.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/exit_code.hpp"

namespace ddp::apps {

namespace {

constexpr char kTopIsGone[] =
    "top is no command any more: use `ddprun ps JOB --watch 1s` (`ddprun -- top` starts a program of that name)";

// Returns whether the working directory has a program of this name: a file, or a folder that Python can run. A folder
// such as the `logs` of --log-dir is none.
bool is_program_here(const std::string& word) {
  std::error_code unknown;
  const std::filesystem::path path(word);
  return std::filesystem::exists(std::filesystem::is_directory(path, unknown) ? path / "__main__.py" : path, unknown);
}

std::optional<int> run(const std::string& word, const std::vector<std::string>& rest) {
  if (word == "ps") return list_jobs(rest);
  if (word == "top") throw SyntaxError(kTopIsGone);
  if (word == "stacks") return show_stacks(rest);
  if (word == "logs") return show_logs(rest);
  if (word == "report") return print_report(rest);
  if (word == "stop") return stop_job(rest);
  if (word == "chaos") return cause_chaos(rest);
  return std::nullopt;
}

}  // namespace

std::optional<int> run_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || is_program_here(arguments[0])) return std::nullopt;
  try {
    return run(arguments[0], {arguments.begin() + 1, arguments.end()});
  } catch (const HelpAsked& help) {
    fputs(help.what(), stdout);
    return 0;
  } catch (const UsageError& error) {  // it names the command's own usage; ddprun's would mislead
    print_line(stderr, error.what());
    return rendezvous::kWrongUsage;
  }
}

}  // namespace ddp::apps
