// SPDX-License-Identifier: BSD-3-Clause
// `ddprun stop [JOB] [--save SIGNAL]`: ends a job in order, on all of its nodes, as a SIGTERM to ddprun does.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Stops the job and waits for its end on this machine. With --save the workers get SIGNAL first, and have until
// --within to handle it. Returns the exit code: 0, or 1 if the job goes on, which was said on stderr. Throws
// SyntaxError, UsageError if no job or several are meant, and rendezvous::Error.
int stop_job(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
