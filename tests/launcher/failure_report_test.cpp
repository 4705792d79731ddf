// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/failure_report.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/error_file.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::WorkerFailure;

namespace {

WorkerFailure failed(int rank, int code, int signal, bool stopped = false) {
  WorkerFailure failure;
  failure.rank = rank;
  failure.local_rank = rank;
  failure.host = "b";
  failure.pid = 1000 + rank;
  failure.status = {code, signal};
  failure.stopped_by_ddprun = stopped;
  return failure;
}

bool has(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("failure report: an error that differs from the first is quoted too", "[launcher][unit]") {
  auto cause = failed(0, 2, 0), same = failed(1, 2, 0), other = failed(2, 1, 0);
  cause.message = same.message = "no data";
  other.message = "lost rank 0";
  const auto lines = failure_report("train", cause, {cause, same, other});
  CHECK(std::count(lines.begin(), lines.end(), "    | no data") == 1);
  CHECK(lines.back() == "    | lost rank 0");
  CHECK(has(failure_report("train", cause, {cause, failed(1, 0, SIGTERM, true)}), "stopped by ddprun: rank 1"));
}

TEST_CASE("failure report: names the first failure, what followed it, and what ddprun stopped", "[launcher][unit]") {
  auto cause = failed(5, 0, SIGSEGV);
  cause.message = "two\nlines";
  cause.stderr_tail = {"last line"};
  cause.stderr_log = "/logs/5/stderr.log";
  const auto lines = failure_report(
      "train", cause,
      {failed(0, 0, SIGTERM, true), failed(1, 0, SIGTERM, true), cause, failed(3, 1, 0), failed(7, 0, SIGTERM, true)});
  CHECK(lines.at(0) == "train failed: rank 5 on node b was killed by SIGSEGV");
  CHECK(has(lines, "pid 1005"));
  CHECK(has(lines, "    | two"));
  CHECK(has(lines, "    | lines"));
  CHECK(has(lines, "    | last line"));
  CHECK(has(lines, "all of its stderr: /logs/5/stderr.log"));
  CHECK(has(lines, "after it: rank 3 on node b exited with code 1"));
  CHECK(has(lines, "stopped by ddprun: ranks 0-1, 7"));
}

TEST_CASE("error file: a missing one is empty", "[launcher][unit]") {
  CHECK(read_error_file("/nowhere/e.json").empty());
}
