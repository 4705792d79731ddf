// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/command.hpp"

#include <unistd.h>

#include "apps/ddprun/commands/change/chaos.hpp"
#include "apps/ddprun/commands/change/stop.hpp"
#include "apps/ddprun/commands/show/logs.hpp"
#include "apps/ddprun/commands/show/ps.hpp"
#include "apps/ddprun/commands/show/report.hpp"
#include "apps/ddprun/commands/show/stacks.hpp"
#include "apps/ddprun/commands/show/top.hpp"

namespace ddp::apps {

std::optional<int> run_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || access(arguments[0].c_str(), F_OK) == 0) return std::nullopt;
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (arguments[0] == "ps") return list_jobs(rest);
  if (arguments[0] == "top") return show_top(rest);
  if (arguments[0] == "stacks") return show_stacks(rest);
  if (arguments[0] == "logs") return show_logs(rest);
  if (arguments[0] == "report") return print_report(rest);
  if (arguments[0] == "stop") return stop_job(rest);
  if (arguments[0] == "chaos") return cause_chaos(rest);
  return std::nullopt;
}

}  // namespace ddp::apps
