// SPDX-License-Identifier: BSD-3-Clause
// `ddprun ps`: lists the jobs of this user that have an agent on this machine. `ddprun ps JOB` shows one, on all of its
// nodes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "apps/ddprun/commands/agents.hpp"

namespace ddp::apps {

// Prints the list, or the job; with --json what each agent answers, one line each. Returns the exit code: 0, also if
// there are none, or 1 if an agent did not answer. Throws SyntaxError for other arguments, UsageError if JOB is none or
// several, and rendezvous::Error if the folder of the agents' sockets is not private to this user.
int list_jobs(const std::vector<std::string>& arguments);

enum class JobForm { Page, Json };
// Prints the state of one job. Returns the exit code: 0, or 1 if a node did not answer. `command` begins what is said
// on stderr.
int print_job(const std::string& command, const FoundJob& found, JobForm form);

// How long an agent may take for the state of its job: longer than the coordinator waits for the nodes.
inline constexpr std::chrono::seconds kJobWithin{4};

}  // namespace ddp::apps
