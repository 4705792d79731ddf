// SPDX-License-Identifier: BSD-3-Clause
// Failures of ddprun itself: the rows A of tests/failure_matrix that no other test covers.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "tests/integration/failures/matrix.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;
using namespace std::chrono_literals;

// ---- Signals ----

TEST_CASE("failure: a batch system that sends TERM, later KILL, to every process of the job leaves nothing",
          "[launcher][integration][S1]") {
  for (const int n : worker_counts()) {
    for (const bool patient : {true, false}) {
      CAPTURE(n, patient);
      Process job(ddprun({workers(n)}, {"note=TERM", "child", "0:escape", "ready", "wait"}));
      job.wait_for("ready", n);
      job.wait_for("escaped ");
      for (const pid_t pid : job.left_over()) ::kill(pid, SIGTERM);
      job.wait_for("got SIGTERM", n);
      // Slurm kills each process of the step. If instead only the guardian is killed, ddprun itself
      // must kill the rest.
      if (patient) {
        for (const pid_t pid : job.left_over()) ::kill(pid, SIGKILL);
      } else {
        ::kill(job.pid(), SIGKILL);
      }
      CHECK(job.wait().code == 128 + SIGKILL);
      CHECK(job.all_gone());
    }
  }
}

TEST_CASE("failure: a stop that reaches every process of the job is one stop, not a second one that kills",
          "[launcher][integration][S1]") {
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n), "--shutdown-timeout=100000"}, {"note=TERM", "note=WINCH", "ready", "wait"}));
    job.wait_for("ready", n);
    ::kill(agent_of(job), SIGTERM);
    job.wait_for("got SIGTERM", n);
    job.signal(SIGTERM);   // the agent has had it already, and the guardian passes it on
    job.signal(SIGWINCH);  // arrives after it
    job.wait_for("got SIGWINCH", n);
    job.signal(SIGINT);  // the user asks again
    const Result result = job.wait();
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.err, "second signal: killing") == 1);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: a Ctrl-C that the caller had too, and passes on, is one stop", "[launcher][integration][A1]") {
  Process job(ddprun({workers(2), "--shutdown-timeout=100000"}, {"note=INT", "note=WINCH", "ready", "wait"}));
  job.wait_for("ready", 2);
  const auto interrupt = [&job] { run({"/bin/sh", "-c", "kill -INT " + std::to_string(job.pid())}); };
  interrupt();  // as from a terminal: not by the caller, which is this process
  job.wait_for("got SIGINT", 2);
  job.signal(SIGINT);
  job.signal(SIGWINCH);  // arrives after it
  job.wait_for("got SIGWINCH", 2);
  interrupt();  // the user asks again
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGINT);
  CHECK(count(result.err, "second signal: killing") == 1);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: workers have their time to save when Slurm's time limit sends SIGTERM twice",
          "[launcher][integration][S1]") {
  for (const int n : worker_counts()) {
    CAPTURE(n);
    Process job(ddprun({workers(n), "--shutdown-timeout=100000"},
                       {"note=TERM", "note=WINCH", "ready", "until=TERM", "until=WINCH", "say=saved", "exit=0"}));
    job.wait_for("ready", n);
    const std::vector<pid_t> step = job.left_over();
    for (const int number : {SIGTERM, SIGCONT, SIGTERM}) {
      for (const pid_t pid : step) ::kill(pid, number);
    }
    job.signal(SIGWINCH);  // arrives after them, and a worker saves when it has it
    const Result result = job.wait();
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.out, "saved") == n);
    CHECK(count(result.err, "second signal") == 0);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: an agent that is killed or crashes leaves no process, and its port is free",
          "[launcher][integration][A2][A3]") {
  for (const int n : worker_counts()) {
    for (const int number : {SIGKILL, SIGABRT, SIGSEGV}) {
      if (kIsSanitized && number == SIGSEGV) continue;  // which a sanitizer turns into an exit
      CAPTURE(n, number);
      Process job(ddprun({workers(n)}, {"env=MASTER_PORT", "meet", "ignore=TERM", "child", "escape", "ready", "wait"}));
      job.wait_for("ready", n);
      job.wait_for("escaped", n);
      job.wait_for("]\n", n);
      const int port = std::stoi(all_after(job.out(), "[MASTER_PORT=").front());
      CHECK_FALSE(is_free(port));
      const auto start = Clock::now();
      ::kill(agent_of(job), number);
      CHECK(job.wait().code == 128 + number);
      CHECK(job.all_gone());
      measured(std::string("SIG") + sigabbrev_np(number) + " of the agent of " + std::to_string(n) +
                   " workers until all are gone",
               Clock::now() - start);
      CHECK(is_free(port));
    }
  }
}

TEST_CASE("failure: an agent that is stopped for seconds continues, and learns what happened meanwhile",
          "[launcher][integration][A4]") {
  for (const auto still : full_matrix() ? std::vector<std::chrono::milliseconds>{3s, 30s} : std::vector{1000ms}) {
    for (const int n : worker_counts()) {
      CAPTURE(n, still.count());
      Process job(ddprun({workers(n), "--max-restarts=1"}, {"meet", "ready", "wait"}));
      job.wait_for("ready", n);
      job.wait_for("\n", 2 * n);
      const pid_t agent = agent_of(job);
      ::kill(agent, SIGSTOP);
      std::this_thread::sleep_for(still / 2);  // how long the agent stands still
      ::kill(pids(job.out()).front(), SIGKILL);
      std::this_thread::sleep_for(still / 2);
      ::kill(agent, SIGCONT);
      job.wait_for("met", 2 * n);
      CHECK(count(job.err(), "restart 1 of 1: ") == 1);
      job.signal(SIGTERM);
      CHECK(job.wait().code == 128 + SIGTERM);
      CHECK(job.left_over().empty());
    }
  }
}

// ---- Limits and files ----

TEST_CASE("failure: an agent that has no descriptor left for a restart ends the job with the reason",
          "[launcher][integration][A5]") {
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n), "--max-restarts=1"}, {"env=MASTER_PORT", "meet", "ready", "wait"}));
    job.wait_for("ready", n);
    job.wait_for("\n", 3 * n);
    const pid_t agent = agent_of(job);
    const rlimit none_left = {3, 3};
    REQUIRE(prlimit(agent, RLIMIT_NOFILE, &none_left, nullptr) == 0);
    // A connection that cannot be accepted must not keep the agent busy either.
    const Connection caller(std::stoi(all_after(job.out(), "[MASTER_PORT=").front()));
    const auto before = cpu_time(agent);
    std::this_thread::sleep_for(500ms);  // how long its processor time is measured
    CHECK(cpu_time(agent) - before < 100ms);
    ::kill(pids(job.out()).front(), SIGKILL);
    const Result result = job.wait();
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(count(result.err, "Too many open files") >= 1);
    CHECK(count(result.err, "ulimit -n") >= 1);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: a log folder that is deleted under the job does not end it", "[launcher][integration][A6]") {
  for (const char* how : {"-r3", "-t3"}) {
    for (const int n : worker_counts()) {
      CAPTURE(how, n);
      const TemporaryFolder folder, signs;
      Process job(ddprun({workers(n), "--max-restarts=1", how, "--log-dir", folder / "logs"},
                         {"say=up", "0/0:beat=" + (signs / "first"), "0/1:beat=" + (signs / "second"), "wait"}));
      wait_until([&] { return std::filesystem::exists(signs / "first.0"); });
      std::filesystem::remove_all(folder / "logs");
      ::kill(worker_of_rank(agent_of(job), 0), SIGKILL);
      wait_until([&] { return std::filesystem::exists(signs / "second.0"); });
      job.signal(SIGTERM);
      const Result result = job.wait();
      CAPTURE(result.err);
      CHECK(result.code == 128 + SIGTERM);
      CHECK(count(result.err, "restart 1 of 1: ") == 1);
      CHECK(job.left_over().empty());
    }
  }
}

// ---- What it inherits ----

TEST_CASE("failure: ddprun handles signals that were blocked or ignored when it started",
          "[launcher][integration][A10]") {
  const Words deaf = {"env", "--ignore-signal=CHLD", "--ignore-signal=PIPE", "--block-signal"};
  for (const int n : worker_counts()) {
    Process failing(deaf + ddprun({workers(n)}, {"0:exit=3", "wait"}));
    CHECK(failing.wait().code == 3);
    CHECK(failing.left_over().empty());

    Process stopped(deaf + ddprun({workers(n)}, {"signals", "catch=TERM", "ready", "wait"}));
    stopped.wait_for("ready", n);
    stopped.signal(SIGTERM);
    const Result result = stopped.wait();
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.out, "got SIGTERM") == n);
    CHECK(count(result.out, "SigBlk:\t0000000000000000") == n);
    CHECK(stopped.left_over().empty());
  }
}

TEST_CASE("failure: a job goes on when the shell that started it ends", "[launcher][integration][A10]") {
  const TemporaryFolder folder;
  Process shell(Words{"sh", "-c", "\"$@\" & echo shell gone", "sh"} +
                ddprun({workers(3)}, {"catch=USR1", "ready", "beat=" + (folder / "beat")}));
  shell.wait_for("shell gone");
  shell.wait_for("ready", 3);
  const int beats = count(read_file(folder / "beat.0"), "\n");
  wait_until([&] { return count(read_file(folder / "beat.0"), "\n") > beats + 20; });
  for (const pid_t pid : shell.left_over()) ::kill(pid, SIGUSR1);
  const Result result = shell.wait();
  CHECK(count(result.out, "got SIGUSR1") == 3);
  CHECK(shell.all_gone());
}

// ---- Clocks ----

TEST_CASE("failure: a time of day that jumps by an hour either way changes nothing but the printed times",
          "[launcher][integration][A9]") {
  const TemporaryFolder folder;
  const std::string clock = folder.write("clock", "0");
  const Process::Options options = with_fake_libc("FAKE_LIBC_CLOCK", clock);
  const Words job = {"--nnodes=2", "--secret=none", "--rdzv-backend=c10d",
                     "--rdzv-endpoint=localhost:" + std::to_string(free_port()),
                     "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3"};
  const Words verbs = {"meet", "catch=USR1", "ready", "wait"};
  Process one(ddprun(job, verbs), options), other(ddprun(job, verbs), options);
  for (Process* node : {&one, &other}) node->wait_for("ready");
  for (const char* jump : {"3600", "-3600"}) {
    folder.write("clock", jump);
    std::this_thread::sleep_for(full_matrix() ? 10s : 2s);  // time for heartbeats by that clock
  }
  for (Process* node : {&one, &other}) {
    CHECK(count(node->out(), "met") == 1);
    CHECK(count(node->err(), "\n") == 1);  // which says that localhost is each machine itself
  }
  const std::time_t before = std::time(nullptr);
  ::kill(std::stoi(all_after(one.out(), "ready ").front()), SIGKILL);
  for (Process* node : {&one, &other}) {
    const Result result = node->wait();
    CAPTURE(result.err);
    CHECK(result.code == 128 + SIGKILL);
    // The faked clock took effect.
    std::tm told = {};
    REQUIRE(strptime(all_after(result.err, " at 20").at(0).insert(0, "20").c_str(), "%Y-%m-%d %H:%M:%S", &told));
    told.tm_isdst = -1;
    CHECK(std::difftime(before, std::mktime(&told)) > 3000);
    CHECK(node->left_over().empty());
  }
}
