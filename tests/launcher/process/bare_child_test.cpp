// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/bare_child.hpp"

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <string>

#include "launcher/process/spawner.hpp"

using namespace ddp::launcher;

namespace {

int code_of(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("bare child: runs the function with its argument in a process of its own", "[launcher][integration]") {
  BareStack stack;
  const int argument = 42;
  const auto run = [](const void* given) { kernel_call(SYS_exit_group, *static_cast<const int*>(given)); };
  CHECK(code_of(start_bare_child(run, &argument, stack, -1)) == 42);
  CHECK(argument == 42);
}

TEST_CASE("bare child: its failing system calls leave the parent's errno alone", "[launcher][integration]") {
  BareStack stack;
  const auto run = [](const void*) {
    const long closed = kernel_call(SYS_close, -1);
    const long missing = kernel_call(SYS_execve, "/no/such/program", 0, 0);
    kernel_call(SYS_exit_group, closed == -EBADF && missing == -ENOENT ? 0 : 1);
  };
  errno = 0;
  const pid_t pid = start_bare_child(run, nullptr, stack, -1);
  siginfo_t end = {};
  const int waited = waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT);
  const int error = errno;
  CHECK(waited == 0);
  CHECK((error == 0 || error == ENOSYS));  // ENOSYS: of clone3, before Linux 5.3
  CHECK(code_of(pid) == 0);
}

TEST_CASE("bare child: a core dump ends no other process", "[launcher][integration]") {
  BareStack stack;
  const auto run = [](const void*) { kernel_call(SYS_kill, kernel_call(SYS_getpid), SIGQUIT); };
  CHECK(code_of(start_bare_child(run, nullptr, stack, -1)) == 128 + SIGQUIT);
}

// The strings are long, so that the kernel takes a while to read them.
TEST_CASE("spawner: a command that is destroyed at once still reaches the program complete",
          "[launcher][integration]") {
  const std::string is_whole = "test ${#NAME} = 100000 && test \"$NAME\" = \"$1\"";
  const std::string text(100'000, 'x');
  for (int i = 0; i < 50; ++i) {
    const WorkerCommand command = {
        "/bin/sh", {"sh", "-c", is_whole, "sh", text}, {"NAME=" + text}, -1, STDOUT_FILENO, STDERR_FILENO};
    const std::vector<pid_t> pids = spawn({command, command}).pids();
    for (const pid_t pid : pids) REQUIRE(code_of(pid) == 0);
  }
}
