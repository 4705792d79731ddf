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

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/stack_report.hpp"
#include "launcher/diagnosis/tell_stacks.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/torchrun_summary.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::WorkerFailure;

void log_failure(const LaunchConfig& config, const JobEnd& end, const std::vector<WorkerStacks>& stacks, Log& log) {
  std::vector<std::string> lines = failure_report(end);
  if (end.cause->never_ran && config.job.max_restarts > 0) {
    lines.push_back("  not restarted: exit code " + std::to_string(end.cause->status.code) +
                    " in the first second means that the program, or a library that it needs, is missing");
  }
  if (log.is_for_terminal()) lines = coloured(std::move(lines));
  std::string report;
  for (const std::string& line : lines) report += (report.empty() ? "" : "\n") + line;
  rendezvous::JsonObject details = failure_details(end);
  if (!stacks.empty()) {
    report += "\n  what the others did, before they were stopped:" + indented_stacks(stacks);
    details.json("stacks", stacks_json(stacks));
  }
  if (config.is_told_elsewhere) return log.info("job_failed", report, end.cause->rank);
  log.error("job_failed", report, end.cause->rank, details);
}

void log_end(const LaunchConfig& config, const JobEnd& end, bool ends_alone, const std::vector<WorkerStacks>& stacks,
             NodeOutput& out) {
  if (config.to_head && ends_alone && end.round.ranks.empty()) {
    config.to_head->cannot_begin(end.exit_code, end.reason);
  } else if (end.cause) {
    log_failure(config, end, stacks, out.log);
    // The report names flight recorders.
    const auto is_here = [&](const WorkerFailure& failure) { return out.attempts.has(failure.flight_recorder); };
    if (is_here(*end.cause) || std::any_of(end.failures.begin(), end.failures.end(), is_here)) out.attempts.keep();
  } else if (end.exit_code != 0 && (ends_alone || !config.is_told_elsewhere)) {
    out.log.error("job_stopped", failure_report(end).front());
  } else {
    out.log.info("job_succeeded", end.reason);
  }
}

// Writes the error file for the launcher that started this ddprun, if one did.
void write_parents_file(const JobEnd& end, Log& log) {
  const char* path = getenv(rendezvous::contract::kErrorFile);
  if (end.exit_code == 0 || !path || *path == '\0') return;
  // torchrun's format has no place for more; only a program that asks for it gets it.
  const std::string facts = end.cause && getenv(rendezvous::contract::kCaller) ? failure_details(end).str() : "";
  const std::string record = end.cause ? record_for_parent(*end.cause, facts)
                                       : record_for_parent(failure_report(end).front(), std::time(nullptr));
  if (write_error_file(path, record)) return;
  log.warning("error_file",
              std::string("cannot write ") + path + " for the launcher that started ddprun: " + strerror(errno));
}

void write_as_torchrun(const LaunchConfig& config, const JobEnd& end, NodeOutput& out) {
  if (end.cause) {
    if (!end.round.error_files.empty()) out.attempts.keep();  // the summary names them
    out.output.write_line(Console::Stderr, torchrun_summary(end, config.program.path));
  } else if (end.exit_code > 128) {
    out.output.write_line(Console::Stderr, torchrun_signal_summary(config.launcher_pid, end.exit_code - 128));
  }
}

void write_report_file(const LaunchConfig& config, const JobEnd& end, NodeOutput& out) {
  const std::string& path = config.logs.report_file;
  if (path.empty()) return;
  if (!end.round.error_files.empty()) out.attempts.keep();  // the report names them
  if (config.is_told_elsewhere) return;  // the head writes the file, with the report of the first node
  if (config.to_head) return config.to_head->report(job_report(end));
  if (write_error_file(path, job_report(end))) return;
  out.log.error("report_file", "cannot write " + path + " (--report-file): " + strerror(errno));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

// Leaves what is known in the log folder, if the user wants one: report.txt to paste into an issue, and report.json.
void write_issue_report(const LaunchConfig& config, const JobEnd& end, const std::vector<WorkerStacks>& stacks,
                        IssueReport::Node node, NodeOutput& out) {
  const bool is_wanted = config.logs.writes_logs() || !config.logs.folder.empty();
  const std::string& folder = out.attempts.root();
  if (end.exit_code == 0 || !is_wanted || folder.empty()) return;
  IssueReport report{.job = config.job.id, .program = end.program, .summary = failure_report(end)};
  if (end.cause) report.details = failure_details(end).str();
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

void report_job_end(const LaunchConfig& config, const Leave& leave, const LastRound& last_round,
                    const std::vector<WorkerStacks>& stacks, IssueReport::Node node, NodeOutput& out) {
  const rendezvous::Directive& why = leave.directive;
  const JobEnd end = {.program = config.program.name,
                      .exit_code = leave.exit_code,
                      .reason = why.reason,
                      .cause = why.cause,
                      .failures = why.failures,
                      .round = last_round};
  const bool ends_alone = leave.is_own && leave.exit_code < 128;  // the sender of a signal knows of the end
  log_end(config, end, ends_alone, stacks, out);
  for (const int pid : leave.unkillable) {
    if (pid != 0) out.log.error("unkillable", "process " + std::to_string(pid) + " could not be killed");
  }
  write_parents_file(end, out.log);
  const bool is_torchrun = config.compatibility == CompatibilityMode::Torchrun;
  if (is_torchrun && !config.is_told_elsewhere) write_as_torchrun(config, end, out);
  write_report_file(config, end, out);
  write_issue_report(config, end, stacks, std::move(node), out);
  out.events.agent_ended(end.exit_code == 0 ? "" : end.cause ? describe(*end.cause) : end.reason);
}

}  // namespace ddp::launcher
