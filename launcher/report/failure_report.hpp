// SPDX-License-Identifier: BSD-3-Clause
// The report that a user reads when a job has failed: which worker failed first and why, which ones followed, and what
// the first one wrote. Text only; what it quotes is printable already (printable.hpp).
#pragma once

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

// Returns the report for a terminal: the first line red, what is quoted dim.
std::vector<std::string> coloured(std::vector<std::string> report);

}  // namespace ddp::launcher
