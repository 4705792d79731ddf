// SPDX-License-Identifier: BSD-3-Clause
// `ddprun logs [JOB] [--rank N] [-f]`: prints what workers have written, from the files of a job that has some.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Prints the files of the newest round's workers on this machine; with -f also what comes, until the job ends. Returns
// the exit code: 0, or 1 if the job writes no files here, which was said on stderr. Throws SyntaxError, UsageError if
// no job or several are meant, and rendezvous::Error.
int show_logs(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
