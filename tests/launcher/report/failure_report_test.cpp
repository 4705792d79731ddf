// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "launcher/report/exit_meaning.hpp"

using namespace ddp::launcher;
using namespace ddp::rendezvous;
using Lines = std::vector<std::string>;

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

JobEnd ended(const WorkerFailure& cause, const std::vector<WorkerFailure>& all) {
  return {.program = "train", .exit_code = cause.status.shell_code(), .cause = cause, .failures = all};
}

// Sets the time zone, since the report's times are local ones.
struct Utc {
  Utc() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
  ~Utc() {
    unsetenv("TZ");
    tzset();
  }
};

}  // namespace

TEST_CASE("failure report: the first failure, what followed it, what ddprun stopped, then its last words",
          "[launcher][unit]") {
  const Utc utc;
  auto cause = failed(5, 0, SIGSEGV);
  cause.time = WallTime(std::chrono::seconds(1'700'000'000));
  cause.message = "two\nlines";
  cause.hint = "do this";
  cause.stderr_tail = {"last line"};
  cause.stderr_log = "/logs/5/stderr.log";
  auto peer = failed(3, 1, 0);
  peer.message = "lost rank 5\nand more";
  const auto lines = failure_report(ended(
      cause, {failed(0, 0, SIGTERM, true), failed(1, 0, SIGTERM, true), cause, peer, failed(7, 0, SIGTERM, true)}));
  CHECK(lines == Lines{"train failed: rank 5 on node b was killed by SIGSEGV",
                       "  that is: segmentation fault: it used memory that is not its own", "  hint: do this",
                       "  first failure: rank 5 (local rank 5, pid 1005) on b at 2023-11-14 22:13:20",
                       "  after it: rank 3 on node b exited with code 1: lost rank 5 (pid 1003)",
                       "  stopped by ddprun: ranks 0-1, 7", "  its error:", "    | two", "    | lines",
                       "  the last lines of its output:", "    | last line",
                       "  all of its stderr: /logs/5/stderr.log"});
}

TEST_CASE("failure report: files of flight recorders are named by node", "[launcher][unit]") {
  const Utc utc;
  auto cause = failed(5, 0, SIGKILL), alone = failed(3, 1, 0), other = failed(2, 1, 0),
       stopped = failed(4, 0, 15, true);
  alone.host = "a";
  alone.flight_recorder = "/logs/a/attempt_0/1/flight_recorder_rank3.json";
  other.flight_recorder = "/logs/b/attempt_0/0/flight_recorder_rank2.json";
  stopped.flight_recorder = "/logs/b/attempt_0/1/flight_recorder_rank4.json";
  const auto lines = failure_report(ended(cause, {cause, alone, other, stopped}));
  CHECK(Lines(lines.end() - 2, lines.end()) ==
        Lines{"  last operations of rank 3 on a: /logs/a/attempt_0/1/flight_recorder_rank3.json",
              "  last operations of ranks 2, 4 on b: /logs/b/attempt_0/*/flight_recorder_rank*.json"});
  other.flight_recorder = "/tmp/ddprun_b/flight_recorder_rank2.json";  // without --log-dir
  stopped.flight_recorder = "/tmp/ddprun_b/flight_recorder_rank4.json";
  CHECK(failure_report(ended(cause, {cause, alone, other, stopped})).back() ==
        "  last operations of ranks 2, 4 on b: /tmp/ddprun_b/flight_recorder_rank*.json");
  const auto details = nlohmann::json::parse(failure_details(ended(other, {other})).str());
  CHECK(details.at("flight_recorder") == other.flight_recorder);
}

TEST_CASE("failure report: what is not known has no line", "[launcher][unit]") {
  const Utc utc;
  CHECK(failure_report(ended(failed(0, 1, 0), {failed(0, 1, 0)})) ==
        Lines{"train failed: rank 0 on node b exited with code 1",
              "  first failure: rank 0 (local rank 0, pid 1000) on b at 1970-01-01 00:00:00"});
}

TEST_CASE("failure report: an error that others share is quoted once", "[launcher][unit]") {
  auto cause = failed(0, 2, 0), same = failed(1, 2, 0);
  cause.message = same.message = "no data";
  const auto lines = failure_report(ended(cause, {cause, same}));
  CHECK(lines.at(2) == "  after it: rank 1 on node b exited with code 2 (pid 1001)");
  CHECK(lines.back() == "    | no data");
}

TEST_CASE("failure report: of many followers sixteen have a line of their own", "[launcher][unit]") {
  std::vector<WorkerFailure> all;
  for (int rank = 0; rank < 100; ++rank) all.push_back(failed(rank, 1, 0));
  const auto lines = failure_report(ended(all[0], all));
  CHECK(lines.size() == 2 + 16 + 1);
  CHECK(lines.back() == "  after them: ranks 17-99");
}

TEST_CASE("failure report: a line that repeats is quoted once", "[launcher][unit]") {
  auto cause = failed(0, 0, SIGSEGV);
  cause.message = "deep\n./a\n./a\n./a\n./a\n./b\n./b";
  const auto lines = failure_report(ended(cause, {cause}));
  CHECK(Lines(lines.end() - 5, lines.end()) ==
        Lines{"    | deep", "    | ./a", "    | [3 more of this line]", "    | ./b", "    | ./b"});
}

TEST_CASE("failure report: a program that could not be executed needs no code explained", "[launcher][unit]") {
  auto cause = failed(0, 126, 0);
  cause.message = "cannot execute ./train: Exec format error";
  for (const std::string& line : failure_report(ended(cause, {cause}))) CHECK(line.find("that is") == line.npos);
}

TEST_CASE("failure report: a worker that ddprun killed because of a timer was not killed from outside",
          "[launcher][unit]") {
  auto cause = failed(0, 0, SIGKILL);
  CHECK(failure_report(ended(cause, {cause})).at(1) == "  that is: killed from outside");
  cause.message = "the timer of scope \"step\" expired (torch.distributed.elastic.timer)";
  CHECK(failure_report(ended(cause, {cause})).at(1) == "  that is: ddprun ended it because its timer had expired");
}

TEST_CASE("failure report: on a terminal the first line is red and what is quoted is dim", "[launcher][unit]") {
  CHECK(coloured({"train failed", "  its error:", "    | no"}) ==
        Lines{"\x1b[31mtrain failed\x1b[0m", "  its error:", "\x1b[2m    | no\x1b[0m"});
}

TEST_CASE("failure report: programs get the same facts as fields", "[launcher][unit]") {
  auto cause = failed(1, 0, SIGKILL);
  cause.out_of_memory = "the kernel said so";
  cause.message = "a \"b\"";
  cause.stderr_tail = {"one", "two"};
  const auto details =
      nlohmann::json::parse(failure_details(ended(cause, {cause, failed(2, 3, 0), failed(0, 0, SIGTERM, true)})).str());
  CHECK(details.at("rank") == 1);
  CHECK(details.at("node") == "b");
  CHECK(details.at("exit_code") == 137);
  CHECK(details.at("signal") == SIGKILL);
  CHECK(details.at("meaning") == "out of memory: the kernel said so");
  CHECK(details.at("error") == "a \"b\"");
  CHECK(details.at("stderr_tail") == nlohmann::json{"one", "two"});
  CHECK(details.at("stopped_by_ddprun") == nlohmann::json{0});
  CHECK(details.at("after_it").at(0).at("exit_code") == 3);
  CHECK(details.at("after_it").at(0).at("signal").is_null());
}

TEST_CASE("exit meaning: codes and signals with a meaning are explained in words", "[launcher][unit]") {
  const auto says = [](ExitStatus status, const std::string& words) {
    return meaning_of(status).find(words) != std::string::npos;
  };
  CHECK(says({.signal = SIGSEGV}, "segmentation fault"));
  CHECK(says({.code = 139}, "killed by SIGSEGV: segmentation fault"));
  CHECK(says({.code = 137}, "killed by SIGKILL: killed from outside"));
  CHECK(says({.code = 134}, "SIGABRT"));
  CHECK(says({.code = 143}, "SIGTERM: asked to end"));
  CHECK(says({.code = 126}, "cannot be executed"));
  CHECK(says({.code = 127}, "not found"));
  CHECK(says({.code = 255}, "-1"));
  CHECK(meaning_of({.code = 1}).empty());
  CHECK(meaning_of({.code = 2}).empty());
  CHECK(meaning_of({.code = 128}).empty());
  CHECK(meaning_of({.code = 138}).empty());  // 128 + SIGUSR1 is a code like any other
  CHECK(meaning_of({.signal = SIGKILL}, "so says the kernel") == "out of memory: so says the kernel");
}
