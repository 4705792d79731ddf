// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/other_user.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/support/hosts.hpp"

namespace ddp::testing {
namespace {

// Changes the user of this thread only: the system call, unlike the library's function, leaves the others alone.
bool become_other_user() { return syscall(SYS_setresuid, kOtherUser, kOtherUser, kOtherUser) == 0; }

}  // namespace

void as_other_user(const std::function<void()>& act) {
  bool became = false;
  std::thread([&act, &became] {
    became = become_other_user();
    if (became) act();
  }).join();
  if (!became) skip("only root can act as another user");
}

OtherUsersProcess::OtherUsersProcess(const std::function<void()>& act) {
  int ready[2];
  if (pipe(ready) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    const bool became = become_other_user();
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of user, which clears it
    if (became) act();
    const char answer = became ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);
  char answer = 'n';
  const bool has_answered = read(ready[0], &answer, 1) == 1;
  close(ready[0]);
  if (has_answered && answer == 'n') {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    skip("only root can act as another user");
  }
}

OtherUsersProcess::~OtherUsersProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace ddp::testing
