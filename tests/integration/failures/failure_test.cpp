// SPDX-License-Identifier: BSD-3-Clause
// Workers that fail, or are stopped, restarted or killed: which one is blamed, what is returned,
// and that nothing is left.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

namespace {

// A pipe with a name. A process that reads a line from it waits until it is opened.
class Gate {
 public:
  explicit Gate(std::string path) : path_(std::move(path)) {
    if (mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + path_);
    fd_ = ddp::rendezvous::Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  const std::string& path() const { return path_; }
  void open() const { REQUIRE(write(fd_.get(), "\n", 1) == 1); }

 private:
  std::string path_;
  ddp::rendezvous::Descriptor fd_;
};

// Waits until no more than `number` processes of the job are left.
bool at_most(std::size_t number, const Process& job) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (job.left_over().size() > number && std::chrono::steady_clock::now() < deadline) {
  }
  return job.left_over().size() <= number;
}

// Returns a command of bash: a process in the background that at SIGTERM waits for the gate, and then ends.
std::string saver(const Gate& gate, const std::string& name) {
  // bash loses a SIGTERM that comes just before its child becomes sleep.
  const std::string on_term = "kill -KILL \\$! 2> /dev/null; echo " + name + " got SIGTERM; read -r line < " +
                              gate.path() + "; echo " + name + " has saved; exit 0";
  return "bash -c 'trap \"" + on_term + "\" TERM; echo " + name + " is ready; while :; do sleep 1000 & wait; done' &";
}

std::vector<std::string> bash(const Words& options, const std::string& script) {
  return ddprun_raw(options + Words{"--no-python", "bash", "-c", script});
}

}  // namespace

TEST_CASE("failure: the first failed worker is named with its last words, the rest are stopped, its code returned",
          "[launcher][integration][P1]") {
  Process job(ddprun({"--nproc_per_node=4"},
                     {"2:shout=my last words", "2:error={\"message\":\"out of luck\"}", "2:exit=7", "wait"}));
  const Result result = job.wait();
  CHECK(result.code == 7);
  CHECK(count(result.err, "rank 2 on node ") >= 1);
  CHECK(count(result.err, "exited with code 7") >= 1);
  CHECK(count(result.err, "out of luck") == 1);
  CHECK(count(result.err, "ddprun:     | my last words") == 1);
  CHECK(count(result.err, "stopped by ddprun: ranks 0-1, 3") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: a worker that dies by a signal is 128 + its number", "[launcher][integration][P4]") {
  const Result result = run(ddprun({"--nproc_per_node=2"}, {"1:die=KILL", "wait"}));
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "was killed by SIGKILL") >= 1);
}

TEST_CASE("failure: PyTorch's error file is quoted once, a broken one as it is", "[launcher][integration]") {
  const std::string torch =
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\nValueError: no\n", "timestamp": "1"}}})";
  CHECK(count(run(ddprun({}, {"error=" + torch, "exit=1"})).err, "ValueError: no") == 1);
  CHECK(count(run(ddprun({}, {"error={\"mess", "exit=1"})).err, "| {\"mess") == 1);
}

TEST_CASE("failure: restarts are counted for the job, each round has an empty store", "[launcher][integration]") {
  const Result result =
      run(ddprun({"--nproc_per_node=2", "--max-restarts=2"},
                 {"env=TORCHELASTIC_RESTART_COUNT", "count", "1/0:die=KILL", "0/0:wait", "1/1:exit=3", "0/1:wait"}));
  CHECK(result.code == 0);
  for (const char* round : {"0", "1", "2"}) {
    CHECK(count(result.out, std::string("[TORCHELASTIC_RESTART_COUNT=") + round + "]") >= 1);
  }
  CHECK(count(result.out, "count 3") == 0);  // each round counts from 1
  CHECK(count(result.err, "restart 1 of 2: rank 1 on node") == 1);
  CHECK(count(result.err, "restart 2 of 2: rank 1 on node") == 1);
}

TEST_CASE("failure: when the restarts are used up, the last failure is reported", "[launcher][integration][P20][S3]") {
  const Result result = run(ddprun({"--max-restarts=1"}, {"0/0:exit=3", "0/1:exit=4"}));
  CHECK(result.code == 4);
  CHECK(count(result.err, "failed: rank 0") == 1);
}

TEST_CASE("failure: a program that is missing, or lacks a library, is not restarted", "[launcher][integration][P20]") {
  const Words restarts = {"--max-restarts=3", "--nproc_per_node=2", "--no-python"};
  for (const int code : {126, 127}) {
    const Result result = run(ddprun_raw(restarts + Words{"bash", "-c", "echo start; exit " + std::to_string(code)}));
    CHECK(result.code == code);
    CHECK(count(result.out, "start") <= 2);
    CHECK(count(result.err, "restart 1 of 3") == 0);
    CHECK(count(result.err, "  not restarted: exit code " + std::to_string(code) + " in the first second") == 1);
  }
}

TEST_CASE("failure: earlier attempts' error files stay in --log-dir", "[launcher][integration]") {
  const TemporaryFolder folder;
  run(ddprun({"--max-restarts=1", "--rdzv-id=j", "--log-dir", folder / "logs"},
             {"0/0:error={\"message\":\"first\"}", "0/1:error={\"message\":\"second\"}", "exit=1"}));
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() == "error.json") ++found;
  }
  CHECK(found == 2);
}

TEST_CASE("failure: a signal to ddprun is forwarded and becomes its exit code", "[launcher][integration][A1][S2]") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const std::string name = sigabbrev_np(number);
    CAPTURE(name);
    Process job(ddprun({"--nproc_per_node=2"}, {"catch=" + name, "ready", "wait"}));
    job.wait_for("ready", 2);
    job.signal(number);
    const Result result = job.wait();
    CHECK(result.code == 128 + number);
    CHECK(count(result.out, "got SIG" + name) == 2);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: SIGUSR1 is passed on and ends nothing", "[launcher][integration]") {
  Process job(ddprun({}, {"note=USR1", "catch=TERM", "ready", "wait"}));
  job.wait_for("ready");
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("failure: a worker that ignores the signal, or is stopped, is killed after the grace period",
          "[launcher][integration][P5][P7][S2]") {
  Process job(
      ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"ignore=TERM", "0:escape", "ready", "0:stop", "wait"}));
  job.wait_for("ready", 2);
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(count(result.err, "--shutdown-timeout") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: a second Ctrl-C kills at once", "[launcher][integration][A1]") {
  Process::Options terminal;
  terminal.on_terminal = true;
  Process job(ddprun({"--nproc_per_node=2", "--shutdown-timeout=100000"}, {"note=INT", "ready", "wait"}), terminal);
  job.wait_for("ready", 2);
  job.type("\x03");
  job.wait_for("got SIGINT", 2);
  job.type("\x03");
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGINT);
  CHECK(count(result.out, "second signal: killing") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: a dead worker's leftovers are killed while the others go on", "[launcher][integration][P10][A11]") {
  Process job(ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"},
                     {"0:child", "0:escape", "0:say=leaving", "0:exit=0", "1:ready", "1:wait"}));
  job.wait_for("leaving");
  job.wait_for("ready");
  CHECK(at_most(4, job));  // guardian, keeper, agent and rank 1
  job.signal(SIGTERM);
  job.wait();
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: what a stopped worker leaves has the rest of its time of grace", "[launcher][integration][P10]") {
  for (const std::string way : {"", "setsid "}) {
    CAPTURE(way);
    TemporaryFolder folder;
    const Gate gate(folder / "gate");
    Process job(bash({"--log-level=info", "--shutdown-timeout=100000"}, way + saver(gate, "leaver") + " wait"));
    job.wait_for("leaver is ready");
    job.signal(SIGTERM);
    job.wait_for("was killed by SIGTERM");  // the worker itself
    job.wait_for("leaver got SIGTERM");
    gate.open();
    const Result result = job.wait();
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.out, "leaver got SIGTERM") == 1);  // and no second time
    CHECK(count(result.out, "leaver has saved") == 1);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: what a worker leaves is asked to end and has a short time for it", "[launcher][integration][P10]") {
  for (const bool is_last : {false, true}) {
    CAPTURE(is_last);
    TemporaryFolder folder;
    const Gate gate(folder / "gate"), never(folder / "never");
    const std::string rank_0 =
        saver(gate, "willing") + saver(never, "unwilling") + " read -r line < " + never.path() + ";";
    const std::string rank_1 = is_last ? "exit 0" : "echo rank 1 is ready; sleep 1000";
    Process job(bash({"--nproc_per_node=2", "--shutdown-timeout=1"},
                     "if [ $RANK = 0 ]; then " + rank_0 + " else " + rank_1 + "; fi"));
    job.wait_for("willing is ready", 2);
    never.open();  // rank 0 ends
    job.wait_for("willing got SIGTERM", 2);
    gate.open();
    job.wait_for("willing has saved");
    job.wait_for("did not end within 1 s");
    if (!is_last) {
      job.wait_for("rank 1 is ready");
      CHECK(at_most(5, job));  // guardian, keeper, agent, and rank 1 with its sleep
      job.signal(SIGTERM);
    }
    CHECK(job.wait().code == (is_last ? 0 : 128 + SIGTERM));
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: an orphan that cleared its environment is killed when the job ends",
          "[launcher][integration][P10]") {
  Process job(ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"0:forget", "0:say=leaving"}));
  CHECK(job.wait().code == 0);
  CHECK(job.left_over().empty());
}
