// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/job_cgroup.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "launcher/process/spawner.hpp"

using namespace ddp::launcher;

namespace {

// Returns the group's folder; empty, with a warning, if there is no group on this machine.
std::string path_of(const JobCgroup& group) {
  const std::string before = "workers are in the control group ";
  const std::string& words = group.describe();
  if (words.rfind(before, 0) == 0) return words.substr(before.size());
  WARN("skipped: " << words);
  return "";
}

pid_t start_in(const JobCgroup& group, int round, int local_rank, const std::string& script) {
  WorkerCommand command = {"/bin/sh", {"sh", "-c", script}, {}, -1, STDOUT_FILENO, STDERR_FILENO};
  const ddp::rendezvous::Descriptor folder = group.open_worker(round, local_rank);
  command.cgroup_fd = folder.get();
  const Spawned spawned = spawn({command});
  return spawned.pids()[0];
}

int end_of(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

}  // namespace

TEST_CASE("job cgroup: a worker's group is removed with it, even while its zombie exists", "[launcher][integration]") {
  JobCgroup group = JobCgroup::choose();
  const auto lock = group.make();
  const std::string path = path_of(group);
  if (path.empty()) return;
  const pid_t pid = start_in(group, 1, 0, "exit 0");
  siginfo_t end = {};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT) == 0);
  group.kill_worker(1, 0);
  CHECK_FALSE(std::filesystem::exists(path + "/1.0"));
  CHECK(WEXITSTATUS(end_of(pid)) == 0);
  group.remove_worker(1, 0);
  CHECK(group.remove_if_empty());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("job cgroup: processes in one worker's group are killed, and those of others are not",
          "[launcher][integration]") {
  JobCgroup group = JobCgroup::choose();
  const auto lock = group.make();
  if (path_of(group).empty()) return;
  const pid_t left = start_in(group, 1, 0, "exec sleep 1000");
  const pid_t other = start_in(group, 1, 1, "exec sleep 1000");
  CHECK_FALSE(group.remove_if_empty());
  group.kill_worker(1, 0);
  CHECK(WTERMSIG(end_of(left)) == SIGKILL);
  CHECK(waitpid(other, nullptr, WNOHANG) == 0);
  group.remove(std::chrono::seconds(10));
  CHECK(WTERMSIG(end_of(other)) == SIGKILL);
  CHECK(group.remove_if_empty());
}

TEST_CASE("job cgroup: a task of Slurm makes none", "[launcher][integration]") {
  setenv("SLURM_TASK_PID", "4711", 1);
  const JobCgroup group = JobCgroup::choose();
  unsetenv("SLURM_TASK_PID");
  CHECK(group.describe() ==
        "no control group (Slurm knows the processes of its steps by groups of its own): descendants are found as this "
        "process's own");
}
