// SPDX-License-Identifier: BSD-3-Clause
// ddprun: parses the command line, forks the agent under its guardian, and exits with the job's exit code.
//
// rendezvous/base/exit_code.hpp decides exit codes. Wrong usage, before a job, has 2; also for torchrun's own parser.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "apps/ddprun/commands/command.hpp"
#include "apps/ddprun/commands/head_note.hpp"
#include "apps/ddprun/invocation.hpp"
#include "apps/ddprun/options/options.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/config/program.hpp"
#include "launcher/coordination/leave_notice.hpp"
#include "launcher/coordination/sidecars.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/hosts/head.hpp"
#include "launcher/hosts/launch_line.hpp"
#include "launcher/hosts/on_host.hpp"
#include "launcher/platform/platform.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/failure_report.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/worker_contract.hpp"

namespace {

using ddp::apps::Invocation;
using ddp::launcher::CompatibilityMode;
using ddp::launcher::ToHead;
using ddp::rendezvous::kWrongUsage;
using ddp::rendezvous::printable;

// Writes the error file for a launcher that started this ddprun.
void leave_error_file(const char* what) {
  const char* path = getenv(ddp::rendezvous::contract::kErrorFile);
  if (!path || *path == '\0') return;
  ddp::launcher::write_error_file(path, ddp::launcher::record_for_parent(what, time(nullptr)));
}

// Prints the error, or leaves that to the head of a job with --hosts, and returns the exit code. Leaves the error file
// too, except for wrong usage, as torchrun does.
int fail(int exit_code, const char* what, const std::optional<ToHead>& head = std::nullopt) {
  if (head) {
    head->cannot_begin(exit_code, what);
    return exit_code;
  }
  fprintf(stderr, "ddprun: %s\n", printable(what).c_str());
  if (exit_code != kWrongUsage) leave_error_file(what);
  return exit_code;
}

// Opens descriptors 0, 1 and 2 if they are closed: else the next pipe would get such a number and be taken for the
// console.
void open_standard_descriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd > STDERR_FILENO) close(fd);
}

// Returns the exit code that the caller sees.
int failure_code(const Invocation& invocation, int code) {
  return ddp::rendezvous::exit_code(
      {.first = {.code = code}, .is_torchrun = invocation.compatibility == CompatibilityMode::Torchrun});
}

int wrong_usage(const Invocation& invocation, const char* what) {
  if (invocation.to_head) return fail(kWrongUsage, what, invocation.to_head);
  if (invocation.caller) leave_error_file(what);  // nobody has typed these options
  if (invocation.compatibility == CompatibilityMode::Torchrun) {
    fprintf(stderr, "usage: torchrun [-h] [options] training_script ...\ntorchrun: error: %s\n",
            printable(what).c_str());
    return kWrongUsage;
  }
  fail(kWrongUsage, what);
  fputs("usage: ddprun [options] program [arguments]; ddprun --help explains them\n", stderr);
  return kWrongUsage;
}

int run(const ddp::apps::Launch& launch) {
  using ddp::launcher::OnTerminalStop;
  using ddp::launcher::StartedBy;
  const std::vector<int>& ends_job = launch.config.stop_signals;
  const bool ctrl_z_ends_job = std::find(ends_job.begin(), ends_job.end(), SIGTSTP) != ends_job.end();
  ddp::launcher::LeaveNotice leave_notice;
  std::optional<ddp::launcher::Sidecars> sidecars;
  if (launch.config.job.max_nodes > 1) sidecars.emplace(launch.config);
  const auto agent = [&](const ddp::launcher::Guarded& guarded) {
    try {
      return ddp::launcher::run_agent(launch.config, launch.log, guarded, leave_notice,
                                      sidecars ? &*sidecars : nullptr);
    } catch (const std::system_error& error) {
      const bool is_limit = error.code() == std::errc::resource_unavailable_try_again;
      return fail(1, (error.what() + (is_limit ? ": " + ddp::launcher::describe_process_limit() : "")).c_str(),
                  launch.config.to_head);
    } catch (const std::exception& error) {
      return fail(1, error.what(), launch.config.to_head);
    }
  };
  const bool is_task = ddp::launcher::is_task_of_slurm(ddp::launcher::own_surroundings(), getpid());
  ddp::launcher::AroundAgent around;
  around.after_agent = [&](const std::string& how) { leave_notice.send("its agent " + how, launch.config); };
  if (sidecars) {
    around.supervisor = &sidecars->supervisor();
    around.before_end = [&sidecars] { sidecars->finish(); };
    around.at_end = [&sidecars] { sidecars->clear(); };
  }
  return ddp::launcher::run_guarded(agent, launch.config.workers,
                                    ctrl_z_ends_job ? OnTerminalStop::GoOn : OnTerminalStop::Stop,
                                    is_task ? StartedBy::Slurmstepd : StartedBy::Anyone, std::move(around));
}

// Becomes the program that starts ddprun on all nodes. Returns the exit code if it cannot.
int start_on_all(const ddp::apps::StartOnAll& start) {
  std::string line;
  for (const std::string& word : start.command) line += (line.empty() ? "" : " ") + word;
  fprintf(stderr, "ddprun: this job of %s has several nodes, and ddprun runs on one: %s\n", start.platform.c_str(),
          line.c_str());
  // The caller is a process of this node, and a terminal's step is the one around the new step.
  unsetenv(ddp::rendezvous::contract::kCaller);
  unsetenv("SLURM_PTY_PORT");
  std::vector<char*> words;
  for (const std::string& word : start.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return fail(1, (start.command[0] + ": " + std::generic_category().message(errno) +
                  "; start ddprun on each node, or give --standalone for this node alone")
                     .c_str());
}

// Runs the job on its hosts, and writes the report that --report-file asks for. The first host, whose report is
// complete otherwise, does not know that a host was lost or could not begin.
int run(const ddp::apps::StartOnHosts& start) {
  const ddp::apps::HeadNote note(start.head);
  const ddp::launcher::HeadEnd end = ddp::launcher::run_head(start.head);
  if (start.report_file.empty() || !end.has_started) return end.code;
  const std::string reason = end.cause.empty() ? "the first host has left no report" : end.cause;
  const bool is_complete = end.cause.empty() && !end.report.empty();
  const std::string report =
      is_complete ? end.report
                  : ddp::launcher::job_report({.program = start.program, .exit_code = end.code, .reason = reason});
  if (!ddp::launcher::write_error_file(start.report_file, report)) {
    fprintf(stderr, "ddprun: cannot write %s (--report-file): %s\n", start.report_file.c_str(), strerror(errno));
  }
  return end.code;
}

int start(const Invocation& invocation, const std::vector<std::string>& arguments) {
  if (invocation.caller) end_with(*invocation.caller);
  try {
    if (invocation.compatibility == CompatibilityMode::Ddprun) {
      if (const auto code = ddp::apps::run_command(arguments)) return *code;
    }
    const auto options = ddp::apps::parse_options(arguments, invocation);
    if (const auto* print = std::get_if<ddp::apps::JustPrint>(&options)) {
      fputs(print->text.c_str(), stdout);
      return 0;
    }
    if (const auto* on_all = std::get_if<ddp::apps::StartOnAll>(&options)) return start_on_all(*on_all);
    if (const auto* on_hosts = std::get_if<ddp::apps::StartOnHosts>(&options)) {
      return failure_code(invocation, run(*on_hosts));
    }
    return failure_code(invocation, run(std::get<ddp::apps::Launch>(options)));
  } catch (const ddp::apps::SyntaxError& error) {
    return wrong_usage(invocation, error.what());
  } catch (const ddp::apps::UsageError& error) {
    return invocation.compatibility == CompatibilityMode::Torchrun ? fail(1, error.what(), invocation.to_head)
                                                                   : wrong_usage(invocation, error.what());
  } catch (const ddp::launcher::ProgramError& error) {
    return failure_code(invocation, fail(error.exit_code(), error.what(), invocation.to_head));
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  try {
    if (argc > 0 && std::string_view(argv[0]) == ddp::launcher::kStackHelperName) {
      return ddp::launcher::run_stack_helper({argv + 1, argv + argc});
    }
    if (argc == 2 && std::string_view(argv[1]) == ddp::launcher::kOnHost) {
      return ddp::launcher::run_on_host([](const ddp::launcher::JobHeader& header, const ToHead& to_head) {
        Invocation invocation = ddp::apps::invocation_of(header);
        invocation.to_head = to_head;
        return start(invocation, header.arguments);
      });
    }
    return start(ddp::apps::read_invocation(argc > 0 ? argv[0] : "ddprun"), {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
