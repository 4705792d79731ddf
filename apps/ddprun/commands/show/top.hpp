// SPDX-License-Identifier: BSD-3-Clause
// `ddprun top [JOB]`: shows a job on all of its nodes, as a page on the terminal that is renewed every second.
#pragma once

#include <string>
#include <vector>

namespace ddp::apps {

// Shows the page until `q`, a signal or the end of the job; prints it once where stdout is no terminal. Returns the
// exit code: 0; 1 if the agent said nothing; 128 + the signal, as other programs. Throws SyntaxError for wrong
// arguments, UsageError if no job or several are meant, and rendezvous::Error.
int show_top(const std::vector<std::string>& arguments);

}  // namespace ddp::apps
