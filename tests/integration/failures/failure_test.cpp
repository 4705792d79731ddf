// SPDX-License-Identifier: BSD-3-Clause
// Workers that fail, or are stopped, restarted or killed: which one is blamed, what is returned,
// and that nothing is left.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

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
  Process job(
      ddprun({"--nproc_per_node=2"}, {"0:child", "0:escape", "0:say=leaving", "0:exit=0", "1:ready", "1:wait"}));
  job.wait_for("leaving");
  job.wait_for("ready");
  // Remaining: guardian, keeper, agent and rank 1.
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (job.left_over().size() > 4 && std::chrono::steady_clock::now() < deadline) {
  }
  CHECK(job.left_over().size() == 4);
  job.signal(SIGTERM);
  job.wait();
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: an orphan that cleared its environment is killed when the job ends",
          "[launcher][integration][P10]") {
  Process job(ddprun({"--nproc_per_node=2"}, {"0:forget", "0:say=leaving"}));
  CHECK(job.wait().code == 0);
  CHECK(job.left_over().empty());
}
