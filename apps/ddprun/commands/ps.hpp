// SPDX-License-Identifier: BSD-3-Clause
// `ddprun ps`: lists the jobs of this user that have an agent on this machine.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Prints the list, or with --json what each agent answers, one line each. Returns the exit code: 0, also if there are
// none, or 1 if an agent did not answer. Throws SyntaxError for other arguments, and rendezvous::Error if the folder of
// the agents' sockets is not private to this user.
int list_jobs(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
