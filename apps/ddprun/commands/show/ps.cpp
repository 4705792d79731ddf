// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/ps.hpp"

#include <algorithm>
#include <cstdio>

#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/show/job_page.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/local/agent_state.hpp"
#include "launcher/local/job_state.hpp"
#include "launcher/text/json_text.hpp"

namespace ddp::apps {
namespace {

using Row = std::vector<std::string>;
const Row kHeadings = {"JOB", "NODE", "PID", "TIME", "ROUND", "WORKERS", "STEP", "PROGRAM"};

std::string shown(const launcher::JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  if (found == members.end()) return "-";
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&found->second)) return std::to_string(*number);
  return "-";
}

std::int64_t number_of(const launcher::JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  const auto* number = found != members.end() ? std::get_if<std::int64_t>(&found->second) : nullptr;
  return number != nullptr ? *number : 0;
}

// Returns "2 running", or "1 of 2 running" once a worker has ended. A job of several nodes has others elsewhere.
std::string workers_in_words(const launcher::JsonMembers& job, const std::string& state) {
  const auto view = launcher::agent_view(state);
  const std::int64_t all = number_of(job, "world_size");
  const auto live = view ? static_cast<std::int64_t>(view->workers.size()) : all;
  const bool some_ended = number_of(job, "nodes") == 1 && shown(job, "phase") == "running" && live < all;
  return (some_ended ? std::to_string(live) + " of " : "") + shown(job, "world_size") + " " + shown(job, "phase");
}

Row row_of(const std::string& state) {
  const launcher::JsonMembers job = *launcher::json_members(state);
  const std::string nodes = shown(job, "nodes") == "0" ? "waits" : shown(job, "node_rank") + "/" + shown(job, "nodes");
  const std::string program = shown(job, "program");
  return {shown(job, "job"),   nodes,
          shown(job, "pid"),   clock_time(number_of(job, "seconds")),
          shown(job, "round"), workers_in_words(job, state),
          shown(job, "step"),  program.substr(program.rfind('/') + 1)};
}

}  // namespace

int print_job(const std::string& command, const FoundJob& found, JobForm form) {
  const std::string json = ask_at_length(found.socket, "job", kJobWithin);
  const auto job = launcher::job_state(json);
  if (!job) {
    print_line(stderr, command + ": the agent of the job " + found.view.job + " did not say its state");
    return 1;
  }
  if (form == JobForm::Json) {
    fputs(json.c_str(), stdout);
  } else {
    for (const std::string& line : JobPage().lines(*job, JobPage::Time())) puts(line.c_str());
  }
  const bool is_whole = job->error.empty() && std::all_of(job->nodes.begin(), job->nodes.end(),
                                                          [](const auto& node) { return node.view.has_value(); });
  return is_whole ? 0 : 1;
}

int list_jobs(const std::vector<std::string>& arguments) {
  const CommandArguments given(
      {.name = "ps",
       .usage = "ddprun ps [JOB] [--json]",
       .about = "Lists this user's jobs on this machine, or shows one job on all of its nodes.",
       .flags = {"--json"}},
      arguments);
  const bool as_json = given.has("--json");
  if (!given.job().empty())
    return print_job("ps", find_job("ps", given.job()), as_json ? JobForm::Json : JobForm::Page);
  std::vector<Row> rows = {kHeadings};
  const AgentAnswers answers = ask_all_agents("ps");
  for (const AgentAnswers::Answer& answer : answers.all) {
    if (as_json) puts(answer.state.c_str());
    if (!as_json) rows.push_back(row_of(answer.state));
  }
  if (!as_json) {
    for (const std::string& line : table(rows)) puts(line.c_str());
  }
  for (const std::string& job : answers.elsewhere) print_line(stderr, "ps: " + job);
  return answers.is_complete ? 0 : 1;
}

}  // namespace ddp::apps
