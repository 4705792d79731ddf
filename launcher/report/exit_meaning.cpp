// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/exit_meaning.hpp"

#include <csignal>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

namespace {

constexpr int kShellsOffset = 128;  // a shell adds the signal to it for a program that a signal killed

const char* meaning_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "segmentation fault: it used memory that is not its own";
    case SIGBUS:
      return "bus error: mapped memory that is not there: a full /dev/shm, or a mapped file that was truncated";
    case SIGFPE:
      return "arithmetic error: most often an integer division by zero";
    case SIGILL:
      return "illegal instruction: one that this CPU does not have, or a jump to memory that holds no code";
    case SIGABRT:
      return "it aborted itself: an uncaught C++ exception, a failed check, or memory that malloc found damaged";
    case SIGTRAP:
      return "trap: a breakpoint, or a check that the compiler inserted";
    case SIGSYS:
      return "a system call that is not allowed here (a seccomp filter of the container?)";
    case SIGKILL:
      return "killed from outside";
    case SIGTERM:
      return "asked to end, not by ddprun";
    case SIGINT:
      return "interrupted, as by Ctrl-C";
    case SIGHUP:
      return "its terminal or session went away";
    case SIGQUIT:
      return "asked to quit, as by Ctrl-\\";
    case SIGPIPE:
      return "it wrote to a pipe or connection that was closed at the other end";
    case SIGALRM:
      return "a timer that it had set expired";
    case SIGXCPU:
      return "it reached its CPU time limit (ulimit -t)";
    case SIGXFSZ:
      return "a file would have grown beyond its limit (ulimit -f)";
    default:
      return "";
  }
}

}  // namespace

std::string meaning_of(const rendezvous::ExitStatus& status, const std::string& out_of_memory) {
  if (!out_of_memory.empty()) return "out of memory: " + out_of_memory;
  if (status.signal != 0) return meaning_of_signal(status.signal);
  if (status.code == rendezvous::kCannotExecute)
    return "a shell's code for a program that was found but cannot be executed";
  if (status.code == rendezvous::kNotFound) return "a shell's code for a program that was not found";
  if (status.code == 255) return "-1: the program failed without saying why";
  const int signal = status.code - kShellsOffset;
  const std::string meaning = meaning_of_signal(signal);
  if (meaning.empty()) return "";
  return "a shell's code for a program killed by " + rendezvous::signal_name(signal) + ": " + meaning;
}

}  // namespace ddp::launcher
