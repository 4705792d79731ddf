// SPDX-License-Identifier: BSD-3-Clause
// How a process ended, and the exit codes of ddprun: exit_code() decides each, for the job and for one node's part.
#pragma once

#include <sys/wait.h>

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
inline constexpr int kCannotExecute = 126;  // as a shell says it: the program was found
inline constexpr int kNotFound = 127;       // as a shell says it, and the dynamic linker of a library

// All that an exit code depends on, the first that is so before the others.
struct Outcome {
  bool is_lost = false;      // a node was lost or did not come; that explains what has failed on the others
  ExitStatus first = {};     // how the first worker that failed has ended, or the process that stands for it here
  int signal = 0;            // that has stopped ddprun; 0: none
  bool has_failed = false;   // ddprun itself, or a part of the job without a worker's fault
  bool is_torchrun = false;  // ddprun was called by that name, which has one code for all that fails after its parser
};

constexpr int exit_code(const Outcome& outcome) {
  const int code = outcome.is_lost            ? kStartAgain
                   : !outcome.first.success() ? outcome.first.shell_code()
                   : outcome.signal != 0      ? 128 + outcome.signal
                   : outcome.has_failed       ? 1
                                              : 0;
  return outcome.is_torchrun && code != 0 ? 1 : code;
}

}  // namespace ddp::rendezvous
