// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/torchrun_summary.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>

using namespace ddp::launcher;
using ddp::rendezvous::WallTime;
using ddp::rendezvous::WorkerFailure;

namespace {

WorkerFailure failure_of(int rank, int code, int signal) {
  WorkerFailure failure;
  failure.rank = rank;
  failure.local_rank = rank % 4;
  failure.host = "node0";
  failure.pid = 100 + rank;
  failure.status = {.code = code, .signal = signal};
  failure.time = WallTime(std::chrono::seconds(1700000000));
  return failure;
}

std::string summary_of(const WorkerFailure& cause, const std::vector<WorkerFailure>& all,
                       const std::map<int, std::string>& error_files = {}) {
  return torchrun_summary(
      {.program = "train.py", .cause = cause, .failures = all, .round = {.ranks = {}, .error_files = error_files}},
      "/usr/bin/python3");
}

}  // namespace

TEST_CASE("torchrun summary: a lone failure has torch's lines and columns", "[launcher][unit]") {
  setenv("TZ", "UTC", 1);
  // As torch 2.15 writes it, the blank after the pid included.
  CHECK(summary_of(failure_of(5, 7, 0), {failure_of(5, 7, 0)}) ==
        R"(failed (exitcode: 7) local_rank: 1 (pid: 105) of binary: /usr/bin/python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-11-14_22:13:20
  host      : node0
  rank      : 5 (local_rank: 1)
  exitcode  : 7 (pid: 105) 
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================)");
}

TEST_CASE("torchrun summary: others come before the root cause, with signals by number and name", "[launcher][unit]") {
  const std::string text =
      summary_of(failure_of(1, 0, SIGSEGV), {failure_of(0, 0, SIGTERM), failure_of(1, 0, SIGSEGV)});
  const auto other = text.find("[1]:\n"), root = text.find("Root Cause (first observed failure):\n[0]:\n");
  REQUIRE(other != std::string::npos);
  REQUIRE(root != std::string::npos);
  CHECK(other < root);
  CHECK(text.find("  exitcode  : -15 (pid: 100)  (SIGTERM)\n") < root);
  CHECK(text.find("  exitcode  : -11 (pid: 101)  (SIGSEGV)\n", root) != std::string::npos);
  CHECK(text.find("  traceback : Signal 11 (SIGSEGV) received by PID 101\n", root) != std::string::npos);
  CHECK(text.find("failed (exitcode: -11) local_rank: 1 (pid: 101)") == 0);
}

TEST_CASE("torchrun summary: a traceback is indented, its file named", "[launcher][unit]") {
  WorkerFailure failure = failure_of(0, 1, 0);
  failure.message = "Traceback:\n  File \"x\"\nValueError: no";
  const std::string text = summary_of(failure, {failure}, {{0, "/logs/0/error.json"}});
  CHECK(
      text.find("  error_file: /logs/0/error.json\n  traceback : Traceback:\n    File \"x\"\n  ValueError: no\n===") !=
      std::string::npos);
}

TEST_CASE("torchrun summary: the border is as wide as the widest line, up to 60", "[launcher][unit]") {
  WorkerFailure failure = failure_of(0, 1, 0);
  failure.message = "short";
  const std::string text = summary_of(failure, {failure});
  const std::string widest = "Root Cause (first observed failure):";  // not counted, as in torch
  CHECK(text.find("\n" + std::string(33, '=') + "\n") != std::string::npos);
  CHECK(widest.size() > 33);
}

TEST_CASE("torchrun summary: a signal to the launcher is given by number", "[launcher][unit]") {
  CHECK(torchrun_signal_summary(42, SIGTERM) ==
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 42 got signal: 15");
}
