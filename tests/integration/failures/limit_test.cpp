// SPDX-License-Identifier: BSD-3-Clause
// Too few files, processes or memory: the message, the figure it gives, and that nothing is left.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

// Returns the number in front of these words.
int figure_before(const std::string& words, const std::string& text) {
  const auto end = text.find(words);
  if (end == std::string::npos) return -1;
  return std::stoi(text.substr(text.rfind(' ', end - 1) + 1));
}

// A control group with a memory limit, of version 1 or 2, removed with the object.
class MemoryLimit {
 public:
  // Skips the test if it cannot be made.
  explicit MemoryLimit(int megabytes) {
    const std::string bytes = std::to_string(megabytes) + "000000";
    for (const auto& [parent, limit] :
         {std::pair{of_version_1(), "memory.limit_in_bytes"}, {of_version_2(), "memory.max"}}) {
      if (parent.empty()) continue;
      path_ = parent + "/ddprun_test_" + std::to_string(getpid());
      std::error_code error;
      if (std::filesystem::create_directory(path_, error) && std::ofstream(path_ + "/" + limit)
                                                                 << bytes << std::flush) {
        std::ofstream(path_ + "/memory.swap.max") << "0";
        return;
      }
      std::filesystem::remove(path_, error);
    }
    skip("this machine does not let the test have a control group with a memory limit");
  }
  ~MemoryLimit() {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    // The group is busy until its last process has died.
    while (rmdir(path_.c_str()) != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  // Returns the command that runs `command` within the group.
  Words on(const Words& command) const {
    return Words{"sh", "-c", "echo $$ > " + path_ + "/cgroup.procs; exec \"$@\"", "sh"} + command;
  }

 private:
  // Returns this process's folder in the hierarchy that has this word in its line of mountinfo.
  static std::string folder(const std::string& mount, const std::string& line_of_cgroup) {
    std::ifstream mounts("/proc/self/mountinfo");
    std::string mounted, place;
    for (std::string line; std::getline(mounts, line);) {
      std::istringstream words(line);
      std::string word, point;
      words >> word >> word >> word >> word >> point;
      if (line.find(mount) != std::string::npos) mounted = point;
    }
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; std::getline(own, line);) {
      const auto at = line.find(line_of_cgroup);
      if (at != std::string::npos) place = line.substr(at + line_of_cgroup.size());
    }
    return mounted.empty() || place.empty() ? "" : mounted + place;
  }
  static std::string of_version_1() { return folder(" - cgroup cgroup rw,memory", ":memory:"); }
  static std::string of_version_2() { return folder(" - cgroup2 ", "0::"); }

  std::string path_;
};

}  // namespace

TEST_CASE("limits: with too few open files the start is refused, with the number that is enough",
          "[launcher][integration][P16][A5]") {
  for (const Words& logs : {Words{}, Words{"--tee=3"}, Words{"--redirects=3"}, Words{"--tee=0:1", "--redirects=2"}}) {
    const TemporaryFolder folder;
    const Words options = Words{"--nproc_per_node=16", "--log-dir", folder.path()} + logs;
    Process::Options files;
    files.max_open_files = 24;
    Process job(ddprun(options, {"say=started", "wait"}), files);
    const Result refused = job.wait();
    CHECK(refused.code == 1);
    CHECK(refused.out.empty());
    CHECK(count(refused.err, "and ddprun may have 24: raise the hard limit") == 1);
    CHECK(job.left_over().empty());

    const int needed = figure_before(" open files", refused.err);
    REQUIRE(needed > 24);
    files.max_open_files = static_cast<rlim_t>(needed);
    CHECK(run(ddprun(options, {"meet"}), files).code == 0);
    files.max_open_files = static_cast<rlim_t>(needed - 1);
    CHECK(run(ddprun(options, {"meet"}), files).code == 1);
  }
}

TEST_CASE("limits: 300 workers that write log files start with 1,024 open files", "[launcher][integration][P16]") {
  const TemporaryFolder folder;
  Process::Options files;
  files.max_open_files = 1024;
  const Result result =
      run(ddprun({"--nproc_per_node=300", "--redirects=3", "--log-dir", folder.path()}, {"meet"}), files);
  CHECK(result.code == 0);
  CAPTURE(result.err);
  CHECK(result.err.empty());
}

TEST_CASE("limits: too few processes are reported with the limit, nothing runs and nothing is left",
          "[launcher][integration][P16]") {
  if (geteuid() != 0) skip("the limit binds a user, and only root can become one that has no processes");
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const Words as_user = {"setpriv", "--reuid=54322", "--clear-groups", "env", "TMPDIR=" + folder.path()};
  if (run(as_user + ddprun_raw({"--version"})).code != 0) skip("others may not reach this folder");
  // A user with no other processes. ddprun itself takes three processes and three threads.
  for (const int limit : {2, 3, 5, 7, 10}) {
    CAPTURE(limit);
    const std::string both = std::to_string(limit) + ":" + std::to_string(limit);
    Process job(as_user + Words{"prlimit", "--nproc=" + both} +
                ddprun({"--nproc_per_node=8"}, {"say=started", "wait"}));
    const Result result = job.wait();
    CHECK(result.code == 1);
    CHECK(result.out.empty());
    CHECK(count(result.err, "this user may have " + std::to_string(limit) + " processes and threads (ulimit -u)") == 1);
    CHECK(job.all_gone());
  }
}

TEST_CASE("limits: a worker that the kernel kills for its memory fails the job, and nothing is left",
          "[launcher][integration][P17]") {
  skip_with_sanitizer("ddprun itself needs more memory than the limit");
  const MemoryLimit memory(100);
  Process job(memory.on(
      ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"escape", "child", "meet", "1:eat=1000", "wait"})));
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "first failure: rank 1 ") == 1);
  CHECK(job.all_gone());
}

TEST_CASE("limits: nothing is left of an agent or a keeper that the kernel kills for its memory",
          "[launcher][integration][A7]") {
  skip_with_sanitizer("ddprun itself needs more memory than the limit");
  for (const bool keeper : {false, true}) {
    const MemoryLimit memory(100);
    Process job(memory.on(ddprun({"--nproc_per_node=2"}, {"escape", "child", "forget", "ready", "stop", "eat=1000"})));
    job.wait_for("ready", 2);
    const auto stopped = [&] {
      const std::vector<pid_t> children = children_of(agent_of(job));
      return std::count_if(children.begin(), children.end(), [](pid_t pid) { return state_of(pid) == 'T'; });
    };
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (stopped() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    const pid_t victim = keeper ? keeper_of(job) : agent_of(job);
    std::ofstream("/proc/" + std::to_string(victim) + "/oom_score_adj") << "1000";  // makes it the kernel's victim
    job.signal(SIGCONT);
    const Result result = job.wait();
    CAPTURE(keeper, result.err);
    CHECK(result.code == 128 + SIGKILL);
    CHECK(count(result.err, std::string("ddprun: its ") + (keeper ? "keeper" : "agent")) == 1);
    CHECK(job.all_gone());
  }
}

TEST_CASE("limits: where a seccomp filter refuses clone3 with EPERM, what failed and what to do is said",
          "[launcher][integration]") {
  Process job(Words{WITHOUT_CALL, "clone3"} + ddprun({}, {"exit=0"}));
  const Result result = job.wait();
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Matches("ddprun: cannot start the thread ddprun-.*: Operation not permitted \\(a "
                                        "seccomp filter .*--security-opt seccomp=unconfined\\)\n"));
  CHECK(job.all_gone());
}

TEST_CASE("limits: where a seccomp filter refuses getrandom, that is said", "[launcher][integration]") {
  Process job(Words{WITHOUT_CALL, "getrandom"} + ddprun({}, {"exit=0"}));
  const Result result = job.wait();
  CHECK(result.code == 1);
  CHECK(result.err ==
        "ddprun: cannot make a random id: getrandom: Operation not permitted (does a seccomp filter refuse it? ddprun "
        "needs it)\n");
  CHECK(job.all_gone());
}

TEST_CASE("limits: without /proc, what is missing and why it is needed is said", "[launcher][integration]") {
  skip_with_sanitizer("programs need /proc");
  const Result result = run(with_file_system("/proc", "size=4k", ddprun({}, {"exit=0"})));
  CHECK(result.code == 1);
  CHECK(result.err ==
        "ddprun: cannot find its own program: /proc/self/exe: No such file or directory (is /proc mounted? ddprun also "
        "finds there which processes are left of a job)\n");
}

TEST_CASE("limits: memory to keep that does not fit into the control group is refused in words, with figures",
          "[launcher][integration]") {
  const MemoryLimit limit(200);
  const Words job = {DDPRUN_BINARY, "--nproc-per-node=2", "--keep-memory", KEPT_WORKER_BINARY, "steps=2"};
  CHECK(run(limit.on(job)).code == 0);
  // What one of the two asks for fits, and not what both ask for. The rest of them is small, so that it has room at any
  // time and the kernel kills nobody.
  const Result result = run(limit.on(job + Words{"spare=120000000"}));
  CAPTURE(result.err);
  CHECK(result.code == 1);
  CHECK(count(result.err, "ddprun refuses it: memory to keep as \"by_hand\"") >= 1);
  CHECK(count(result.err, "raise its memory limit, or leave out --keep-memory") >= 1);
}
