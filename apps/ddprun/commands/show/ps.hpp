// SPDX-License-Identifier: BSD-3-Clause
// `ddprun ps`: lists the jobs of this user that have an agent on this machine. `ddprun ps JOB` shows one, on all of its
// nodes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp::apps {

// Prints the list, or the job; with --json what each agent answers, one line each. Returns the exit code: 0, also if
// there are none, or 1 if an agent did not answer. Throws SyntaxError for other arguments, UsageError if JOB is none or
// several, and rendezvous::Error if the folder of the agents' sockets is not private to this user.
// With --watch it prints again and again, until the job JOB has ended.
int list_jobs(const std::vector<std::string>& arguments);

// How long an agent may take for the state of its job: longer than the coordinator waits for the nodes.
inline constexpr std::chrono::seconds kJobWithin{4};

}  // namespace ddp::apps
