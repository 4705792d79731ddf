// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/job_end.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/diagnosis/tell_stacks.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/torchrun_summary.hpp"
#include "launcher/stacks/stack_json.hpp"
#include "launcher/stacks/stack_report.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Directive;
using rendezvous::WorkerFailure;

void log_failure(const LaunchConfig& config, const WorkerFailure& cause, const std::vector<WorkerFailure>& all,
                 const std::vector<WorkerStacks>& stacks, Log& log) {
  std::vector<std::string> lines = failure_report(config.program.name, cause, all);
  if (cause.never_ran && config.job.max_restarts > 0) {
    lines.push_back("  not restarted: exit code " + std::to_string(cause.status.code) +
                    " in the first second means that the program, or a library that it needs, is missing");
  }
  if (log.is_for_terminal()) lines = coloured(std::move(lines));
  std::string report;
  for (const std::string& line : lines) report += (report.empty() ? "" : "\n") + line;
  JsonObject details = failure_details(config.program.name, cause, all);
  if (!stacks.empty()) {
    report += "\n  what the others did, before they were stopped:" + indented_stacks(stacks);
    details.json("stacks", stacks_json(stacks));
  }
  if (config.is_told_elsewhere) return log.info("job_failed", report, cause.rank);
  log.error("job_failed", report, cause.rank, details);
}

void log_end(const LaunchConfig& config, const Leave& end, const LastRound& last_round,
             const std::vector<WorkerStacks>& stacks, NodeOutput& out) {
  const Directive& why = end.directive;
  Log& log = out.log;
  const bool ends_alone = end.is_own && end.exit_code < 128;  // the sender of a signal knows of the end
  if (config.to_head && ends_alone && last_round.ranks.empty()) {
    config.to_head->cannot_begin(end.exit_code, why.reason);
  } else if (why.cause) {
    log_failure(config, *why.cause, why.failures, stacks, log);
    // The report names flight recorders.
    const auto is_here = [&](const WorkerFailure& failure) { return out.attempts.has(failure.flight_recorder); };
    if (is_here(*why.cause) || std::any_of(why.failures.begin(), why.failures.end(), is_here)) out.attempts.keep();
  } else if (end.exit_code != 0 && (ends_alone || !config.is_told_elsewhere)) {
    log.error("job_stopped", config.program.name + " stopped: " + why.reason);
  } else {
    log.info("job_succeeded", why.reason);
  }
  for (const int pid : end.unkillable) {
    if (pid != 0) log.error("unkillable", "process " + std::to_string(pid) + " could not be killed");
  }
}

// Writes the error file for the launcher that started this ddprun, if one did.
void write_parents_file(const LaunchConfig& config, const Leave& end, Log& log) {
  const char* path = getenv(rendezvous::contract::kErrorFile);
  if (end.exit_code == 0 || !path || *path == '\0') return;
  const Directive& why = end.directive;
  // torchrun's format has no place for more; only a program that asks for it gets it.
  const std::string facts = why.cause && getenv(rendezvous::contract::kCaller)
                                ? failure_details(config.program.name, *why.cause, why.failures).str()
                                : "";
  const std::string record =
      why.cause ? record_for_parent(*why.cause, facts)
                : record_for_parent(config.program.name + " stopped: " + why.reason, std::time(nullptr));
  if (write_error_file(path, record)) return;
  log.warning("error_file",
              std::string("cannot write ") + path + " for the launcher that started ddprun: " + strerror(errno));
}

void write_as_torchrun(const LaunchConfig& config, const Leave& end, const std::map<int, std::string>& error_files,
                       NodeOutput& out) {
  const Directive& why = end.directive;
  if (why.cause) {
    if (!error_files.empty()) out.attempts.keep();  // the summary names them
    out.output.write_line(Console::Stderr, torchrun_summary(config.program, *why.cause, why.failures, error_files));
  } else if (end.exit_code > 128) {
    out.output.write_line(Console::Stderr, torchrun_signal_summary(config.launcher_pid, end.exit_code - 128));
  }
}

void write_report_file(const LaunchConfig& config, const Leave& end, const LastRound& last_round, NodeOutput& out) {
  const std::string& path = config.logs.report_file;
  const Directive& why = end.directive;
  if (path.empty()) return;
  if (!last_round.error_files.empty()) out.attempts.keep();  // the report names them
  if (config.is_told_elsewhere) return;  // the head writes the file, with the report of the first node
  const std::string report = job_report({.program = config.program.name,
                                         .exit_code = end.exit_code,
                                         .reason = why.reason,
                                         .cause = why.cause,
                                         .failures = why.failures,
                                         .ranks = last_round.ranks,
                                         .error_files = last_round.error_files});
  if (config.to_head) return config.to_head->report(report);
  if (write_error_file(path, report)) return;
  out.log.error("report_file", "cannot write " + path + " (--report-file): " + strerror(errno));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

// Leaves what is known in the log folder, if the user wants one: report.txt to paste into an issue, and report.json.
void write_issue_report(const LaunchConfig& config, const Leave& end, const std::vector<WorkerStacks>& stacks,
                        IssueReport::Node node, NodeOutput& out) {
  const bool is_wanted = config.logs.writes_logs() || !config.logs.folder.empty();
  const std::string& folder = out.attempts.root();
  if (end.exit_code == 0 || !is_wanted || folder.empty()) return;
  const Directive& why = end.directive;
  IssueReport report{.job = config.job.id, .program = config.program.name};
  report.summary = why.cause ? failure_report(config.program.name, *why.cause, why.failures)
                             : std::vector{config.program.name + " stopped: " + why.reason};
  if (why.cause) report.details = failure_details(config.program.name, *why.cause, why.failures).str();
  report.nodes.push_back(std::move(node));
  if (!stacks.empty()) {
    report.stacks = lines_of(describe_stacks(stacks));
    report.stacks_json = stacks_json(stacks);
  }
  for (const auto& [name, text] : {std::pair("/report.txt", to_text(report)), {"/report.json", to_json(report)}}) {
    if (write_error_file(folder + name, text)) continue;
    return out.log.warning("report", "cannot write " + folder + name + ": " + strerror(errno));
  }
  out.attempts.keep();
  out.log.info("report", "all that is known of the failure is in " + folder + "/report.txt and report.json");
}

}  // namespace

void report_job_end(const LaunchConfig& config, const Leave& end, const LastRound& last_round,
                    const std::vector<WorkerStacks>& stacks, IssueReport::Node node, NodeOutput& out) {
  log_end(config, end, last_round, stacks, out);
  write_parents_file(config, end, out.log);
  const bool is_torchrun = config.compatibility == CompatibilityMode::Torchrun;
  if (is_torchrun && !config.is_told_elsewhere) write_as_torchrun(config, end, last_round.error_files, out);
  write_report_file(config, end, last_round, out);
  write_issue_report(config, end, stacks, std::move(node), out);
  const Directive& why = end.directive;
  out.events.agent_ended(end.exit_code == 0 ? "" : why.cause ? describe(*why.cause) : why.reason);
}

}  // namespace ddp::launcher
