// SPDX-License-Identifier: BSD-3-Clause
// `ddprun chaos [JOB]`: kills workers, the agent or all of a node's processes on purpose, to test that a job recovers.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Kills until the job ends or the count is reached, and prints a line for each kill. Returns the exit code: 0, or 1 if
// a process of the job could not be killed, which was said on stderr. Throws SyntaxError for wrong arguments, and
// UsageError if no job or several are meant.
int cause_chaos(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
