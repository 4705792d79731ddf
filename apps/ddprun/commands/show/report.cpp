// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/report.hpp"

#include <chrono>
#include <cstdio>
#include <sstream>
#include <utility>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/show/job_page.hpp"
#include "apps/ddprun/commands/show/ps.hpp"
#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/local/job_answers.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/report/issue_report.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

constexpr std::chrono::seconds kStacksWithin{12};

// Returns the answers of all nodes. That there are none is no reason to print no report.
launcher::JobAnswers answers_of(const FoundJob& job, const std::string& ask, std::chrono::seconds within) {
  try {
    auto answers = launcher::job_answers(ask_at_length(job.socket, ask, within));
    if (answers) return std::move(*answers);
    return {.nodes = {}, .error = "the agent of this node said nothing"};
  } catch (const rendezvous::Error& error) {
    return {.nodes = {}, .error = error.what()};
  }
}

void add_state(const FoundJob& job, launcher::IssueReport& report) {
  const std::string json = ask_at_length(job.socket, "job", kJobWithin);
  const auto state = launcher::job_view(json);
  if (!state) return;
  report.summary = JobPage().lines(*state, JobPage::Time());
  report.details = json;
}

// Returns whether all nodes have answered.
bool add_stacks(const FoundJob& job, launcher::IssueReport& report) {
  const auto answers = answers_of(job, "job_stacks", kStacksWithin);
  std::vector<launcher::WorkerStacks> all;
  if (!answers.error.empty()) report.stacks.push_back(answers.error);
  for (const auto& node : answers.nodes) {
    const auto stacks = launcher::stacks_from_json(node.text);
    if (stacks) all.insert(all.end(), stacks->begin(), stacks->end());
    if (!stacks) report.stacks.push_back("node " + node.host + ": " + (node.error.empty() ? "no stacks" : node.error));
  }
  const bool is_whole = report.stacks.empty();
  std::istringstream lines(launcher::describe_stacks(all));
  for (std::string line; std::getline(lines, line);) report.stacks.push_back(line);
  report.stacks_json = launcher::stacks_json(all);
  return is_whole;
}

bool add_nodes(const FoundJob& job, launcher::IssueReport& report) {
  const auto answers = answers_of(job, "job_report", kJobWithin);
  bool is_whole = answers.error.empty();
  for (const auto& answer : answers.nodes) {
    launcher::IssueReport::Node node = launcher::node_report(answer.host, answer.text);
    if (!answer.error.empty()) node.error = answer.error;
    is_whole = is_whole && node.error.empty();
    report.nodes.push_back(std::move(node));
  }
  return is_whole;
}

}  // namespace

int print_report(const std::vector<std::string>& arguments) {
  const CommandArguments given({.name = "report",
                                .usage = "ddprun report [JOB] [--json]",
                                .about = "Prints all that is known of a job, without secrets, to paste into an issue.",
                                .flags = {"--json"}},
                               arguments);
  const FoundJob job = find_job("report", given.job());
  launcher::IssueReport report{.job = job.view.job, .program = job.view.program};
  add_state(job, report);
  const bool has_stacks = add_stacks(job, report);
  const bool has_nodes = add_nodes(job, report);
  const std::string text = given.has("--json") ? launcher::to_json(report) + "\n" : launcher::to_text(report);
  fputs(text.c_str(), stdout);
  return has_stacks && has_nodes ? 0 : 1;
}

}  // namespace ddp::apps
