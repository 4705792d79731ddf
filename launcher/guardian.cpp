// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "launcher/process_tree.hpp"
#include "rendezvous/error.hpp"

namespace ddp::launcher {

namespace {

constexpr std::chrono::seconds kUnkillableAfter(10);

int after_agent(pid_t agent, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const auto left = kill_descendants_and_wait(kUnkillableAfter);
  const char* name = sigabbrev_np(WTERMSIG(status));
  fprintf(stderr, "ddprun: its agent (pid %d) was killed by SIG%s; all workers were killed\n", agent,
          name ? name : "?");
  for (const pid_t pid : left) fprintf(stderr, "ddprun: process %d cannot be killed\n", pid);
  return 128 + WTERMSIG(status);
}

int guard(pid_t agent) {
  const sigset_t signals = managed_signals();
  while (true) {
    int status = 0;
    // As pid 1 or as subreaper the guardian also inherits strangers: reap whatever is dead.
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == agent) return after_agent(agent, status);
    }
    siginfo_t info;
    const int signal = sigwaitinfo(&signals, &info);
    if (signal > 0 && signal != SIGCHLD) kill(agent, signal);
  }
}

}  // namespace

sigset_t managed_signals() {
  sigset_t set;
  sigfillset(&set);
  // What stops the process itself, and its own faults, keep their meaning.
  for (const int keep : {SIGTSTP, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&set, keep);
  }
  return set;
}

int run_guarded(const std::function<int(const Guarded&)>& agent) {
  int alive[2];
  if (pipe2(alive, O_CLOEXEC) != 0) {
    throw rendezvous::Error(rendezvous::ErrorCode::System,
                            std::string("cannot make a pipe to the agent: ") + strerror(errno));
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t signals = managed_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored, and then no child could be waited for
  const pid_t pid = fork();
  if (pid < 0) {
    throw rendezvous::Error(rendezvous::ErrorCode::System, std::string("cannot fork the agent: ") + strerror(errno));
  }
  if (pid == 0) {
    close(alive[1]);
    // Out of the terminal's foreground group: Ctrl-C reaches the guardian, and the agent hears of it once.
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return agent({alive[0]});
  }
  close(alive[0]);
  return guard(pid);
}

}  // namespace ddp::launcher
