// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/spawner.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/process/process_tree.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/support/process.hpp"

using namespace ddp::launcher;

namespace {

WorkerCommand shell(const std::string& script) {
  return {"/bin/sh", {"sh", "-c", script}, {"NAME=value"}, -1, STDOUT_FILENO, STDERR_FILENO};
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("spawner: workers run with their own arguments and environment", "[launcher][integration]") {
  const Spawned spawned = spawn({shell("test \"$NAME\" = value && exit 3"), shell("exit 4")});
  CHECK(wait_for(spawned.pids()[0]) == 3);
  CHECK(wait_for(spawned.pids()[1]) == 4);
}

TEST_CASE("spawner: each worker leads its own session", "[launcher][integration]") {
  const ddp::testing::TemporaryFolder folder;
  const Spawned spawned = spawn({shell("cut -d' ' -f 1,5,6 /proc/$$/stat > " + folder.path() + "/stat")});
  const pid_t pid = spawned.pids()[0];
  CHECK(wait_for(pid) == 0);
  const std::string id = std::to_string(pid);
  CHECK(ddp::testing::read_file(folder / "stat") == id + " " + id + " " + id + "\n");
}

TEST_CASE("spawner: a worker has the limits of its command", "[launcher][integration]") {
  WorkerCommand command = shell("test $(ulimit -Sn) = 123 && test $(ulimit -Sp) = 1234");  // dash: -p is processes
  Limits limits = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limits.files) == 0);
  REQUIRE(getrlimit(RLIMIT_NPROC, &limits.processes) == 0);
  limits.files.rlim_cur = 123;
  limits.processes.rlim_cur = 1234;
  command.limits = limits;
  CHECK(wait_for(spawn({command}).pids()[0]) == 0);
}

TEST_CASE("spawner: a program that the kernel refuses is reported with the reason", "[launcher][integration][P16]") {
  WorkerCommand missing = shell("");
  missing.path = "/no/such/program";
  Spawned spawned = spawn({shell("exit 0"), missing});
  CHECK(wait_for(spawned.pids()[0]) == 0);
  CHECK(wait_for(spawned.pids()[1]) == 127);
  CHECK_FALSE(spawned.exec_failure(0));
  REQUIRE(spawned.exec_failure(1));
  CHECK(spawned.exec_failure(1)->error == ENOENT);
}

TEST_CASE("spawner: if one worker cannot be forked, none runs", "[launcher][integration][P16]") {
  const ddp::testing::TemporaryFolder folder;
  // In a child, since the limit cannot be raised again, and as a user who is not root, since root
  // has no such limit.
  const pid_t tester = fork();
  if (tester == 0) {
    if (chown(folder.path().c_str(), 54321, 54321) != 0 || setuid(54321) != 0) _exit(77);
    const rlimit limit = {2, 2};
    setrlimit(RLIMIT_NPROC, &limit);
    try {
      spawn(std::vector<WorkerCommand>(8, shell("touch " + folder.path() + "/ran")));
    } catch (const ddp::rendezvous::Error&) {
      _exit(descendants_of(getpid()).empty() ? 0 : 2);
    }
    _exit(1);
  }
  const int code = wait_for(tester);
  if (code == 77) {
    WARN("skipped: only root can become the user that the limit is for");
    return;
  }
  CHECK(code == 0);
  CHECK(access((folder / "ran").c_str(), F_OK) != 0);
}

TEST_CASE("spawner: workers die with the process that started them", "[launcher][integration]") {
  int alive[2];
  REQUIRE(pipe(alive) == 0);
  const pid_t agent = fork();
  if (agent == 0) {
    WorkerCommand command = shell("echo up; exec sleep 1000");
    command.stdout_fd = alive[1];
    spawn({command});
    close(alive[1]);
    while (true) pause();
  }
  close(alive[1]);
  char bytes[3];
  REQUIRE(read(alive[0], bytes, 3) == 3);
  kill(agent, SIGKILL);
  wait_for(agent);
  CHECK(read(alive[0], bytes, 1) == 0);  // end of file once the worker, the last writer, is gone
  close(alive[0]);
}
