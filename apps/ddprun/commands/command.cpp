// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/command.hpp"

#include <unistd.h>

#include "apps/ddprun/commands/chaos.hpp"
#include "apps/ddprun/commands/ps.hpp"
#include "apps/ddprun/commands/stacks.hpp"

namespace ddp::apps {

std::optional<int> run_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || access(arguments[0].c_str(), F_OK) == 0) return std::nullopt;
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (arguments[0] == "ps") return list_jobs(rest);
  if (arguments[0] == "stacks") return show_stacks(rest);
  if (arguments[0] == "chaos") return cause_chaos(rest);
  return std::nullopt;
}

}  // namespace ddp::apps
