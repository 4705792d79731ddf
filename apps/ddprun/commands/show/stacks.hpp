// SPDX-License-Identifier: BSD-3-Clause
// `ddprun stacks [JOB]`: prints what the workers of a job are doing, on all of its nodes.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Prints the stacks, or with --json all that is known. Returns the exit code: 0, or 1 if the job has no workers now, or
// if a node did not answer, which is said on stderr.
// Throws SyntaxError for other arguments, and UsageError if no job or several are meant.
int show_stacks(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
