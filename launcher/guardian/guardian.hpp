// SPDX-License-Identifier: BSD-3-Clause
// Guardian and keeper: two processes above the agent, which outlive it. The guardian is the process
// that the user started; it forwards signals and returns the job's exit code. The keeper stands
// between guardian and agent.
//
//     shell ── guardian (signals) ── keeper ── agent ── worker, worker, ...
//
// All three are subreapers: if one is killed, its children are reparented to the one above, which
// kills until none is left. The agent ends the job if one above it is gone (Guarded::guardian_fd).
// So a process escapes only if all three die at once. That is why there are three: guardian and
// agent have the name that people type, and `pkill -9 ddprun` kills both. The keeper has another
// name, another command line and a session of its own.
//
// In a job of several nodes the keeper also starts another agent when one is killed, has the coordinator and the store
// as children where this node has them (supervisor.hpp), and kills the workers of an agent that does not run
// (deadman.hpp).
//
// Guardian and keeper have one thread each, and do nothing that can fail after the fork.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include "launcher/guardian/deadman.hpp"
#include "launcher/guardian/supervisor.hpp"
#include "launcher/process/job_cgroup.hpp"

namespace ddp::launcher {

struct Guarded {
  int guardian_fd = -1;  // reads end of file once guardian or keeper is gone; the agent closes it
  int cleanup_fd = -1;   // takes paths, each followed by a NUL
  JobCgroup cgroup;      // for the workers
  const Deadman& deadman;
  int life = 1;  // 2 and more: the agent before this one was killed

  // Has the file or folder removed if the agent is killed.
  void remove_if_killed(const std::string& path) const;
};

// What the guardian does at SIGTSTP (Ctrl-Z) once it has forwarded it: stop itself too, as a shell
// expects, or go on because SIGTSTP is one of the signals that end the job.
enum class OnTerminalStop { Stop, GoOn };

// Whether the job ends with the process that started ddprun. It does with Slurm's slurmstepd: nothing else of Slurm
// knows what runs in its step, and the node may soon have another job.
enum class StartedBy { Anyone, Slurmstepd };

struct AroundAgent {
  // Called in the keeper, when the agent has ended and no process below it is left; `how` is "exited with code 1" or
  // "was killed by SIGKILL".
  std::function<void(const std::string& how)> after_agent = {};
  // In a job of several nodes: what the keeper runs beside the agent. There it also starts another agent when one is
  // killed.
  Supervisor* supervisor = nullptr;
  std::function<void()> before_end = {};  // called in the keeper: the agent has ended by itself, its sidecars may run
  std::function<void()> at_end = {};      // called in the guardian, when nothing of the job is left here
};

// Forks twice. The grandchild runs agent(...) in a session of its own and returns its result; the
// other two stay as guardian and keeper, and return the exit code of the whole program. Must be
// called while the process has one thread. In the agent all managed_signals() are blocked from the
// start, so that none is lost before it handles them. Meanwhile the keeper, which is idle, makes
// the control groups of `workers` workers; the agent would wait 50 us for each.
int run_guarded(const std::function<int(const Guarded&)>& agent, int workers, OnTerminalStop on_stop,
                StartedBy started_by, const AroundAgent& around);

// Returns the signals that all three processes block and read: every signal that can be caught,
// except those of faults and those that a terminal sends to background jobs.
sigset_t managed_signals();

// Overwrites the command line of this process, which was forked and did not execute a program, with a name.
void rename_command_line(const char* name);

// Recognizes a signal that arrives twice. scancel, systemd and a terminal's Ctrl-C signal several
// processes at once. A process below another then receives the signal directly, and once more when the
// process above forwards the signal. The second arrival must not count as a user's second request.
class DoubleSignal {
 public:
  // Returns whether the previous signal was the same one, and arrived the other way (directly, or
  // from the process above) less than 2 s ago.
  bool came_the_other_way(int signal, bool from_above) {
    const Heard heard = {signal, from_above, std::chrono::steady_clock::now()};
    if (newest_ && newest_->signal == signal && newest_->from_above != from_above &&
        heard.time - newest_->time < std::chrono::seconds(2)) {
      return true;
    }
    newest_ = heard;
    return false;
  }

 private:
  struct Heard {
    int signal = 0;
    bool from_above = false;
    std::chrono::steady_clock::time_point time;
  };
  std::optional<Heard> newest_;
};

}  // namespace ddp::launcher
