// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/stacks.hpp"

#include <cstdio>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/stacks/stack_report.hpp"
#include "launcher/stacks/take_stacks.hpp"

namespace ddp::apps {
namespace {

constexpr std::chrono::seconds kWithin{5};

}  // namespace

int show_stacks(const std::vector<std::string>& arguments) {
  bool as_json = false;
  std::string name;
  for (const std::string& argument : arguments) {
    if (argument == "--json") {
      as_json = true;
    } else if (name.empty() && !argument.empty() && argument[0] != '-') {
      name = argument;
    } else {
      throw SyntaxError("stacks: \"" + argument + "\" is too much (ddprun stacks [JOB] [--json])");
    }
  }
  const launcher::AgentView job = find_job("stacks", name).view;
  if (job.workers.empty()) {
    fprintf(stderr, "ddprun stacks: the job %s has no workers here now\n", job.job.c_str());
    return 1;
  }
  std::vector<std::pair<int, pid_t>> workers;
  for (const launcher::WorkerView& worker : job.workers) workers.emplace_back(worker.rank, worker.pid);
  const auto stacks = launcher::take_stacks(workers, launcher::find_stack_tools(job.workers.front().pid), kWithin);
  fputs((as_json ? launcher::stacks_json(stacks) + "\n" : launcher::describe_stacks(stacks)).c_str(), stdout);
  return 0;
}

}  // namespace ddp::apps
