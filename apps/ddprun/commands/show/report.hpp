// SPDX-License-Identifier: BSD-3-Clause
// `ddprun report [JOB] [--json]`: prints one document with all that is known of a running job, for somebody else.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Prints the report. Returns the exit code: 0, or 1 if a node did not answer, which the report says, too. Throws
// SyntaxError, UsageError if no job or several are meant, and rendezvous::Error.
int print_report(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
