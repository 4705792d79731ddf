// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/timers/file_timer_core.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using ddp::launcher::describe;
using ddp::launcher::ExpiredTimers;
using ddp::launcher::FileTimerCore;
using ddp::launcher::parse_timer_request;
using ddp::launcher::TimerRequest;
using std::chrono::seconds;
using Expiry = FileTimerCore::Time;
using Expired = std::vector<ExpiredTimers>;

namespace {

constexpr pid_t kWorker = 7, kOtherWorker = 8;
constexpr std::uint64_t kBorn = 100;

Expiry at(int unix_seconds) { return Expiry(seconds(unix_seconds)); }

}  // namespace

TEST_CASE("file timer: a line of PyTorch's client is read", "[launcher][unit]") {
  // As FileTimerClient of PyTorch 2.15 wrote it.
  const char* line =
      R"({"version": 1, "pid": 21900, "scope_id": "step", "expiration_time": 1795431411.207262, "signal": 9})";
  CHECK(parse_timer_request(line) == TimerRequest{21900, "step", 1795431411.207262, 9});
  line = R"({"version": 1, "pid": 21900, "scope_id": "a.py#3", "expiration_time": -1, "signal": 0})";
  CHECK(parse_timer_request(line) == TimerRequest{21900, "a.py#3", -1, 0});
}

TEST_CASE("file timer: a line that is no request is none", "[launcher][unit]") {
  for (const char* line : {
           "",
           "x",
           "7",
           "[]",
           "{}",
           "null",
           "{\"pid\": 7",
           R"({"pid": 7, "scope_id": "a", "expiration_time": 1})",
           R"({"pid": "7", "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": 0, "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": -1, "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": 4294967303, "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": 18446744073709551615, "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": 7.5, "scope_id": "a", "expiration_time": 1, "signal": 9})",
           R"({"pid": 7, "scope_id": 3, "expiration_time": 1, "signal": 9})",
           R"({"pid": 7, "scope_id": "a", "expiration_time": "1", "signal": 9})",
           R"({"pid": 7, "scope_id": "a", "expiration_time": 1e999, "signal": 9})",
           R"({"pid": 7, "scope_id": "a", "expiration_time": 1, "signal": 65})",
           R"({"pid": 7, "scope_id": "a", "expiration_time": 1, "signal": true})",
       }) {
    CAPTURE(line);
    CHECK_FALSE(parse_timer_request(line));
  }
}

TEST_CASE("file timer: a timer expires at its time, once", "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 10, SIGKILL}, kBorn);
  CHECK(core.next() == at(10));
  CHECK(core.expire(at(9)).empty());
  CHECK(core.expire(at(10)) == Expired{{kWorker, kBorn, {"step"}, SIGKILL}});
  CHECK(core.expire(at(11)).empty());
  CHECK_FALSE(core.next());
}

TEST_CASE("file timer: a released timer does not expire, one acquired again has its new time", "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 10, SIGKILL}, kBorn);
  core.take({kWorker, "step", -1, 0}, kBorn);
  core.take({kWorker, "never acquired", -1, 0}, kBorn);
  CHECK_FALSE(core.next());
  core.take({kWorker, "step", 10, SIGKILL}, kBorn);
  core.take({kWorker, "step", 20, SIGTERM}, kBorn);
  CHECK(core.expire(at(10)).empty());
  CHECK(core.expire(at(20)) == Expired{{kWorker, kBorn, {"step"}, SIGTERM}});
}

TEST_CASE(
    "file timer: of several expired timers the first with a signal counts, and the process's others are forgotten",
    "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "a", 12, SIGINT}, kBorn);
  core.take({kWorker, "b", 10, 0}, kBorn);
  core.take({kWorker, "c", 11, SIGTERM}, kBorn);
  core.take({kWorker, "later", 13, SIGKILL}, kBorn);
  core.take({kOtherWorker, "a", 13, SIGKILL}, kBorn);
  CHECK(core.expire(at(12)) == Expired{{kWorker, kBorn, {"b", "c", "a"}, SIGTERM}});
  CHECK(core.expire(at(13)) == Expired{{kOtherWorker, kBorn, {"a"}, SIGKILL}});
}

TEST_CASE("file timer: a timer without a signal expires without one", "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 10, -1}, kBorn);
  CHECK(core.expire(at(10)) == Expired{{kWorker, kBorn, {"step"}, 0}});
}

TEST_CASE("file timer: timers of a dead process are forgotten, also if another one has its number",
          "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 10, SIGKILL}, kBorn);
  core.take({kOtherWorker, "step", 11, SIGKILL}, kBorn);
  core.forget(kWorker);
  CHECK(core.next() == at(11));
  core.take({kOtherWorker, "load", 12, SIGKILL}, kBorn + 1);
  CHECK(core.expire(at(12)) == Expired{{kOtherWorker, kBorn + 1, {"load"}, SIGKILL}});
}

TEST_CASE("file timer: no timer of a round is left in the next one", "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 10, SIGKILL}, kBorn);
  core.clear();
  CHECK_FALSE(core.next());
  CHECK(core.expire(at(10)).empty());
}

TEST_CASE("file timer: a time that no clock reaches is far away", "[launcher][unit]") {
  FileTimerCore core;
  core.take({kWorker, "step", 1e300, SIGKILL}, kBorn);
  CHECK(core.expire(at(2'000'000'000)).empty());
  CHECK(core.next() > at(2'000'000'000));
}

TEST_CASE("file timer: an expiry is described by its scopes, which a terminal can show", "[launcher][unit]") {
  CHECK(describe(ExpiredTimers{kWorker, kBorn, {"step"}, SIGKILL}) ==
        "the timer of scope \"step\" expired (torch.distributed.elastic.timer)");
  CHECK(describe(ExpiredTimers{kWorker, kBorn, {"a\x1b[31m", "b"}, SIGKILL}) ==
        "the timers of scopes \"a\", \"b\" expired (torch.distributed.elastic.timer)");
  CHECK(describe(ExpiredTimers{kWorker, kBorn, std::vector<std::string>(10, "a"), SIGKILL}) ==
        "the timers of scopes \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\", \"a\" and 2 more expired "
        "(torch.distributed.elastic.timer)");
}

TEST_CASE("file timer: a worker that names scopes without end costs little memory", "[launcher][unit]") {
  FileTimerCore core;
  for (int i = 0; i < 20'000; ++i) core.take({kWorker, std::to_string(i), 10, SIGKILL}, kBorn);
  CHECK(core.expire(at(10)).at(0).scopes.size() == 10'000);
  const auto line = [](std::size_t bytes) {
    return R"({"pid":7,"expiration_time":1,"signal":9,"scope_id":")" + std::string(bytes, 'x') + "\"}";
  };
  CHECK(parse_timer_request(line(4096)));
  CHECK_FALSE(parse_timer_request(line(4097)));
}
