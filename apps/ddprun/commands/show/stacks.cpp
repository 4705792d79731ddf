// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/stacks.hpp"

#include <chrono>
#include <cstdio>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/local/job_answers.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::apps {
namespace {

constexpr std::chrono::seconds kWithin{12};  // the coordinator waits less for the nodes

int fail(const std::string& job, const std::string& why) {
  print_line(stderr, "stacks: the job " + job + ": " + why);
  return 1;
}

}  // namespace

int show_stacks(const std::vector<std::string>& arguments) {
  const CommandArguments given({.name = "stacks",
                                .usage = "ddprun stacks [JOB] [--json]",
                                .about = "Shows what each worker of a job is doing, on all of its nodes.",
                                .flags = {"--json"}},
                               arguments);
  const FoundJob found = find_job("stacks", given.job());
  const launcher::AgentView& job = found.view;
  const auto answers = launcher::job_answers(ask_at_length(found.socket, "job_stacks", kWithin));
  if (!answers) return fail(job.job, "its agent took no stacks in time; is the machine overloaded? Try again");
  std::vector<launcher::WorkerStacks> all;
  int exit_code = answers->error.empty() ? 0 : fail(job.job, answers->error);
  for (const launcher::NodeAnswer& node : answers->nodes) {
    const auto stacks = launcher::stacks_from_json(node.text);
    const std::string name = "node " + node.host + ": ";
    if (!stacks) exit_code = fail(job.job, name + (node.error.empty() ? "no stacks" : node.error));
    if (stacks) all.insert(all.end(), stacks->begin(), stacks->end());
  }
  if (all.empty() && exit_code == 0) return fail(job.job, "it has no workers now");
  fputs(
      (given.has("--json") ? launcher::stacks_json(all) + "\n" : rendezvous::printable(launcher::describe_stacks(all)))
          .c_str(),
      stdout);
  return exit_code;
}

}  // namespace ddp::apps
