// SPDX-License-Identifier: BSD-3-Clause
// The report that a user reads when a job has failed: who failed first and why, then what it dragged along. Text only.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/link_messages.hpp"

namespace ddp::launcher {

// Lines without "ddprun: " in front. program: as the user named it.
std::vector<std::string> failure_report(const std::string& program, const rendezvous::WorkerFailure& cause,
                                        const std::vector<rendezvous::WorkerFailure>& all);

}  // namespace ddp::launcher
