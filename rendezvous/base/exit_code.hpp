// SPDX-License-Identifier: BSD-3-Clause
// How a process ended, why a job does (Why), and the exit codes of ddprun: exit_code() decides each, for the job and
// for one node's part.
#pragma once

#include <sys/wait.h>

#include <initializer_list>
#include <string>

#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

// How a process ended.
struct ExitStatus {
  int code = 0;    // exit code, if it exited
  int signal = 0;  // the signal that killed it, else 0
  // Returns the status that waitpid() has given.
  static ExitStatus of(int wait_status) {
    if (WIFEXITED(wait_status)) return {.code = WEXITSTATUS(wait_status), .signal = 0};
    return {.code = 0, .signal = WTERMSIG(wait_status)};
  }
  constexpr bool success() const { return code == 0 && signal == 0; }
  // Returns the code as a shell gives it: the exit code, or 128 + the signal.
  constexpr int shell_code() const { return signal != 0 ? 128 + signal : code; }
  // Returns the code as Python's subprocess gives it: the exit code, or the signal as a negative number.
  constexpr int python_code() const { return signal != 0 ? -signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// Returns "was killed by SIGKILL" or "exited with code 7".
inline std::string describe(const ExitStatus& status) {
  return status.signal == 0 ? "exited with code " + std::to_string(status.code)
                            : "was killed by " + signal_name(status.signal);
}

inline constexpr int kWrongUsage = 2;       // nothing was started
inline constexpr int kStartAgain = 75;      // EX_TEMPFAIL of sysexits.h: the program has not failed
inline constexpr int kCannotExecute = 126;  // the program was found, but cannot be executed
inline constexpr int kNotFound = 127;       // the program, or a library of the program, was not found

// Why a node waits, a round ends, the next one is a restart, or the job is over. It is for machines and tests; people
// read the sentence beside it. Messages have its number, so that a new one comes last.
enum class Why {
  None,
  Failed,  // for a reason without a word of its own: ddprun itself, or a part of the job without a worker's fault
  Succeeded,
  WorkerFailed,
  NeverRan,    // a worker's program cannot run there, so the job is not restarted
  Unkillable,  // processes outlived SIGKILL, so the job is not restarted
  Hang,        // workers made no progress
  StopSignal,  // a user ended the job, or this node's part
  Released,    // a user stopped this node, and the others go on
  NodeJoined,
  NodesMissing,   // nodes are awaited; at the end of a job: they did not come
  Spare,          // all seats are taken
  MakesRoom,      // this node was the first cause of too many failures
  RankIsHeld,     // another node has this node's rank
  OptionsDiffer,  // this node has other options than the job
  NodeLost,       // it fell silent, or its link broke, or it was killed
  NodeLeft,       // its user stopped it, or it left by itself
  NodeStopped,    // a node ended its own workers
  NoStore,        // none could be opened
  StoreLost,
  NewLeader,      // another node coordinates
  NotReplaced,    // no node came for one that is gone
  JobIsGone,      // the job that this node was part of is over, or its record is gone
  NoCoordinator,  // none was there when this node came
  CoordinatorLost,
};
inline constexpr Why kLastWhy = Why::CoordinatorLost;

// Returns whether a part of the job is gone, or never came: that explains what has failed on the nodes that are there.
constexpr bool is_loss(Why why) {
  for (const Why loss : {Why::NodesMissing, Why::NodeLost, Why::NodeLeft, Why::NodeStopped, Why::StoreLost,
                         Why::NewLeader, Why::NotReplaced, Why::JobIsGone, Why::NoCoordinator, Why::CoordinatorLost}) {
    if (why == loss) return true;
  }
  return false;
}

// All that an exit code depends on. A loss decides before a failed worker, a worker before a signal.
struct Outcome {
  Why why = Why::None;
  ExitStatus first = {};     // how the first failed worker ended, or the process that stands for that worker here
  int signal = 0;            // the signal that stopped ddprun; 0: none
  bool is_torchrun = false;  // ddprun was called by that name, which has one code for all that fails after its parser
};

constexpr int exit_code(const Outcome& outcome) {
  const int code = is_loss(outcome.why)                                        ? kStartAgain
                   : !outcome.first.success()                                  ? outcome.first.shell_code()
                   : outcome.signal != 0                                       ? 128 + outcome.signal
                   : outcome.why != Why::None && outcome.why != Why::Succeeded ? 1
                                                                               : 0;
  return outcome.is_torchrun && code != 0 ? 1 : code;
}

}  // namespace ddp::rendezvous
