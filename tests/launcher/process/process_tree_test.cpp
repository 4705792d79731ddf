// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/process_tree.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/support/process.hpp"

using namespace ddp::launcher;

namespace {

// Starts a child that forks a grandchild, and returns once both exist; both sleep.
pid_t start_family() {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      setsid();
      if (write(ready[1], "g", 1) != 1) _exit(1);
    }
    while (true) pause();
  }
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

}  // namespace

TEST_CASE("process tree: descendants are found at any depth and in any session", "[launcher][integration]") {
  const pid_t child = start_family();
  const auto below = descendants_of(getpid());
  CHECK(below.size() == 2);
  CHECK(std::count(below.begin(), below.end(), child) == 1);
  CHECK(descendants_of(child).size() == 1);
  CHECK(children_of_self() == std::vector<pid_t>{child});
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  CHECK(kill_descendants_and_wait(std::chrono::seconds(10)).empty());
  CHECK(descendants_of(getpid()).empty());
}

TEST_CASE("process tree: a zombie counts as exiting, a sleeper does not", "[launcher][integration]") {
  const pid_t sleeper = fork();
  if (sleeper == 0) {
    while (true) pause();
  }
  CHECK_FALSE(is_exiting(sleeper));
  kill(sleeper, SIGKILL);
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(sleeper), &info, WEXITED | WNOWAIT) == 0);
  CHECK(is_exiting(sleeper));
  waitpid(sleeper, nullptr, 0);
}

TEST_CASE("process tree: a child's exit status is known before it is reaped, and not before it dies",
          "[launcher][integration]") {
  for (const int expected : {0, 7 << 8, SIGKILL}) {
    sigset_t usr1, before;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, &before);
    const pid_t child = fork();
    if (child == 0) {
      int number;
      sigwait(&usr1, &number);
      _exit(expected >> 8);
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    CHECK_FALSE(status_of_dying(child));
    kill(child, expected == SIGKILL ? SIGKILL : SIGSTOP);
    siginfo_t info;
    if (expected != SIGKILL) {
      REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED) == 0);
      CHECK_FALSE(status_of_dying(child));  // although /proc shows a code for a stopped process too
      kill(child, SIGUSR1);
      kill(child, SIGCONT);
    }
    REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    CHECK(status_of_dying(child) == expected);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == expected);
    CHECK_FALSE(status_of_dying(child));  // there is no such process any more
  }
}

TEST_CASE("process tree: a process whose main thread has ended does not die", "[launcher][integration]") {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] {
      while (true) pause();
    }).detach();
    syscall(SYS_exit, 3);
  }
  siginfo_t info = {};
  const std::string main_thread = "/proc/" + std::to_string(child) + "/stat";
  ddp::testing::wait_until([&] { return ddp::testing::read_file(main_thread).find(") Z ") != std::string::npos; });
  CHECK_FALSE(status_of_dying(child));
  kill(child, SIGKILL);
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(status_of_dying(child) == SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_CASE("process tree: the resident size of a process counts the memory that it has touched",
          "[launcher][integration]") {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  const std::size_t before = resident_size(getpid());
  CHECK(before > 0);
  const std::vector<char> memory(kSize, 1);
  CHECK(resident_size(getpid()) >= before + kSize / 2);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info = {};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(resident_size(child) == 0);
  waitpid(child, nullptr, 0);
  CHECK(resident_size(child) == 0);
}

TEST_CASE("process tree: a process is recognized by a variable it was started with", "[launcher][integration]") {
  CHECK_FALSE(was_started_with(getpid(), "DDPRUN_INCARNATION", "x"));
  const char* path = getenv("PATH");
  REQUIRE(path);
  CHECK(was_started_with(getpid(), "PATH", path));
}
