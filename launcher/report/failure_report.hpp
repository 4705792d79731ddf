// SPDX-License-Identifier: BSD-3-Clause
// The report that a user reads when a job has failed: which worker failed first and why, which ones followed, and what
// the first one wrote. Text only; what it quotes is printable already (printable.hpp).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/text/json_text.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns the report's lines, without "ddprun: " in front, the same on every node. `program` is as the user named it.
std::vector<std::string> failure_report(const std::string& program, const rendezvous::WorkerFailure& cause,
                                        const std::vector<rendezvous::WorkerFailure>& all);

// Returns the facts of the report for programs.
JsonObject failure_details(const std::string& program, const rendezvous::WorkerFailure& cause,
                           const std::vector<rendezvous::WorkerFailure>& all);

// How a job ended, as one node knows it.
struct JobEnd {
  std::string program;
  int exit_code = 0;
  std::string reason;
  std::optional<rendezvous::WorkerFailure> cause;     // absent if no worker failed
  std::vector<rendezvous::WorkerFailure> failures{};  // on all nodes, stopped workers too
  std::vector<int> ranks{};                           // on this node, in the last round
  std::map<int, std::string> error_files{};           // those that workers of this node left, by rank
};

// Returns what --report-file holds. The first of its failures is the cause.
std::string job_report(const JobEnd& end);

// Returns the report for a terminal: the first line red, what is quoted dim.
std::vector<std::string> coloured(std::vector<std::string> report);

}  // namespace ddp::launcher
