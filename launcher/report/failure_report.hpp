// SPDX-License-Identifier: BSD-3-Clause
// The record of how a job ended, and reports made of it. A report for users names the worker that failed first, the
// reason, the workers that failed after it, and quotes the stderr of the first; all text is printable already
// (printable.hpp). A report for programs has the same facts as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/link/messages.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

// This node's part of the newest round.
struct LastRound {
  std::vector<int> ranks;
  std::map<int, std::string> error_files;  // those that workers left, by rank
};

// How a job ended, as one node knows it.
struct JobEnd {
  std::string program;  // as the user named it
  int exit_code = 0;
  std::string reason = {};
  std::optional<rendezvous::WorkerFailure> cause = {};   // absent if no worker failed
  std::vector<rendezvous::WorkerFailure> failures = {};  // on all nodes, stopped workers too
  LastRound round = {};
};

// Returns the report's lines, without "ddprun: " in front, the same on every node.
std::vector<std::string> failure_report(const JobEnd& end);

// Returns the facts of the report for programs. A worker must have failed.
rendezvous::JsonObject failure_details(const JobEnd& end);

// Returns what --report-file holds. The first of its failures is the cause.
std::string job_report(const JobEnd& end);

// Returns the report for a terminal: the first line red, what is quoted dim.
std::vector<std::string> coloured(std::vector<std::string> report);

}  // namespace ddp::launcher
