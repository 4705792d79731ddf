// SPDX-License-Identifier: BSD-3-Clause
// The report that a user reads when a job has failed: who failed first and why, what it dragged along, and what the
// first one said. Text only; what is quoted is printable already (printable.hpp).
#pragma once

#include <string>
#include <vector>

#include "launcher/text/json_text.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Lines without "ddprun: " in front, the same on every node. program: as the user named it.
std::vector<std::string> failure_report(const std::string& program, const rendezvous::WorkerFailure& cause,
                                        const std::vector<rendezvous::WorkerFailure>& all);

// The same facts for programs.
JsonObject failure_details(const std::string& program, const rendezvous::WorkerFailure& cause,
                           const std::vector<rendezvous::WorkerFailure>& all);

// The report for a terminal: the first line red, what is quoted dim.
std::vector<std::string> coloured(std::vector<std::string> report);

}  // namespace ddp::launcher
