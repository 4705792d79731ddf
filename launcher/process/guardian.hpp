// SPDX-License-Identifier: BSD-3-Clause
// Guardian and keeper outlive the agent. The guardian is the process that the user started; it forwards signals and
// takes the exit code. The keeper is a second one between it and the agent.
//
//     shell ── guardian (signals) ── keeper ── agent ── worker, worker, ...
//
// All three are subreapers: if one is killed, what was below it falls to the one above, which kills it until none is
// left; and the agent ends the job if one above it is gone (Guarded::guardian_fd). So all three would have to die in
// one moment for a process to get away, and that is why there are three: guardian and agent have the name that people
// type, and `pkill -9 ddprun` hits both. The keeper has another name, another command line and a session of its own.
//
// One thread each, and nothing that can fail after the fork.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "launcher/process/job_cgroup.hpp"

namespace ddp::launcher {

struct Guarded {
  int guardian_fd = -1;  // end of file: guardian or keeper is gone; the agent closes it
  int cleanup_fd = -1;   // a folder's path, written here at once, is removed if the agent is killed
  JobCgroup cgroup;      // for the workers
};

// The guardian stops itself when its terminal says so (Ctrl-Z), once it has passed that on. Not if SIGTSTP is one of
// the signals that end the job.
enum class OnTerminalStop { Stop, GoOn };

// Forks twice. The grandchild runs agent(...) in a session of its own and returns what it returns; the others stay as
// guardian and keeper and return the exit code for the whole program. Call it while the process has one thread. In the
// agent all managed_signals() are blocked from the start, so that none is lost before it listens. The keeper makes
// control groups for so many workers meanwhile: it is idle, and the agent would wait 50 us for each.
int run_guarded(const std::function<int(const Guarded&)>& agent, int workers,
                OnTerminalStop on_stop = OnTerminalStop::Stop);

// What all three take as messages: every signal that can be caught, but for faults and a terminal's to the background.
sigset_t managed_signals();

}  // namespace ddp::launcher
