// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/ps.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/commands/arguments.hpp"
#include "apps/ddprun/commands/show/job_page.hpp"
#include "apps/ddprun/commands/table.hpp"
#include "launcher/local/job_view.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

using Row = std::vector<std::string>;
enum class Form { Text, Screen, Json };  // Screen: text on a terminal, which is cleared first

const Row kHeadings = {"JOB", "NODE", "PID", "TIME", "ROUND", "WORKERS", "STEP", "PROGRAM"};

Row row_of(const launcher::AgentView& job) {
  const rendezvous::NodeFacts& facts = job.facts;
  const std::string count = std::to_string(facts.node_count), all = std::to_string(facts.world_size);
  // A job of several nodes has other workers elsewhere.
  const bool some_ended = facts.node_count == 1 && job.phase == "running" && std::ssize(job.workers) < facts.world_size;
  const auto step = job.step();
  return {job.job,
          facts.node_count == 0 ? "waits" : std::to_string(facts.node_rank) + "/" + count,
          std::to_string(job.pid),
          clock_time(job.seconds),
          std::to_string(facts.round),
          (some_ended ? std::to_string(job.workers.size()) + " of " : "") + all + " " + job.phase,
          step ? std::to_string(*step) : "-",
          job.program.substr(job.program.rfind('/') + 1)};
}

void print_text(const std::vector<std::string>& lines, Form form) {
  if (form == Form::Screen) fputs("\x1b[H\x1b[2J", stdout);
  for (const std::string& line : lines) puts(line.c_str());
}

// Prints the state of one job. Returns the exit code.
int print_job(const FoundJob& found, Form form, JobPage& page) {
  const std::string json = ask_at_length(found.socket, "job", kJobWithin);
  const auto job = launcher::job_view(json);
  if (!job) {
    print_line(stderr, "ps: the agent of the job " + found.view.job + " did not say its state");
    return 1;
  }
  if (form == Form::Json) {
    fputs(json.c_str(), stdout);
  } else {
    print_text(page.lines(*job, std::chrono::steady_clock::now()), form);
  }
  const bool is_whole = job->error.empty() && std::all_of(job->nodes.begin(), job->nodes.end(),
                                                          [](const auto& node) { return node.view.has_value(); });
  return is_whole ? 0 : 1;
}

int print_list(Form form) {
  std::vector<Row> rows = {kHeadings};
  const AgentAnswers answers = ask_all_agents("ps");
  for (const AgentAnswers::Answer& answer : answers.all) {
    if (form == Form::Json) puts(answer.state.c_str());
    if (form != Form::Json) rows.push_back(row_of(answer.view));
  }
  if (form != Form::Json) print_text(table(rows), form);
  for (const std::string& job : answers.elsewhere) print_line(stderr, "ps: " + job);
  return answers.is_complete ? 0 : 1;
}

// Returns whether stdout is a terminal that understands escape sequences.
bool is_screen() {
  const char* const kind = getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

// Prints until the job has ended, or stdout is gone. Returns the exit code.
int print_again(std::chrono::milliseconds interval, const std::function<int()>& print) {
  print();
  while (fflush(stdout) == 0) {
    std::this_thread::sleep_for(interval);
    try {
      print();
    } catch (const rendezvous::Error& error) {
      if (error.code() != rendezvous::ErrorCode::PeerLost) throw;
      print_line(stderr, "ps: the job has ended");
      return 0;
    }
  }
  return 1;
}

}  // namespace

int list_jobs(const std::vector<std::string>& arguments) {
  const CommandArguments given(
      {.name = "ps",
       .usage = "ddprun ps [JOB] [--json] [--watch 1s]",
       .about = "Lists this user's jobs on this machine, or shows one job on all of its nodes; with --watch again and "
                "again.",
       .flags = {"--json"},
       .values = {"--watch"}},
      arguments);
  const auto interval = given.duration("--watch");
  const Form form = given.has("--json") ? Form::Json : interval && is_screen() ? Form::Screen : Form::Text;
  std::function<int()> print = [form] { return print_list(form); };
  if (!given.job().empty()) {
    const FoundJob job = find_job("ps", given.job());
    print = [job, form, page = JobPage()]() mutable { return print_job(job, form, page); };
  }
  return interval ? print_again(*interval, print) : print();
}

}  // namespace ddp::apps
