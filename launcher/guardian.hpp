// SPDX-License-Identifier: BSD-3-Clause
// The guardian outlives the agent: it is the process that the user started, a subreaper and the agent's parent. It
// forwards signals, takes the agent's exit code, and if the agent is killed it kills every descendant until none is
// left. The agent does the same if the guardian is killed (it watches Guarded::guardian_fd).
//
//     shell ── guardian (signals) ── agent ── worker, worker, ...
//
// One thread, no allocation to speak of, nothing that can fail after the fork.
#pragma once

#include <csignal>
#include <functional>

namespace ddp::launcher {

struct Guarded {
  int guardian_fd = -1;  // end of file: the guardian is gone
};

// Forks. The child runs agent(...) in a session of its own and returns what it returns; the parent stays as guardian
// and returns the exit code for the whole program. Call it while the process has one thread. In the agent all
// managed_signals() are blocked from the start, so that none is lost before it listens.
int run_guarded(const std::function<int(const Guarded&)>& agent);

// What guardian and agent take as messages: every signal that can be caught, but for stops and faults.
sigset_t managed_signals();

}  // namespace ddp::launcher
