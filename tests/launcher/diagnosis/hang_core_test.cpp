// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/hang_core.hpp"

#include <catch2/catch.hpp>
#include <functional>

using namespace ddp::launcher;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const HangCore::TimePoint kStart{};
constexpr int kMain = 100, kOther = 101;  // threads of rank 0

// Rank 0 as stacks show it: the function of its main thread, and of another one.
std::vector<WorkerStacks> in(const std::string& main, const std::string& other = "wait") {
  return {{0,
           kMain,
           {{kMain, "MainThread", "runs", {{main, "/home/me/train.py", 1}}, {}},
            {kOther, "other", "runs", {}, {{other, "/usr/lib/libc.so.6"}}}},
           {}}};
}

// Sees the signs at each time that the core asks for, until it wants stacks or the time is over.
void see_until(HangCore& core, HangCore::TimePoint end, const Signs& signs) {
  while (!core.wants_stacks() && core.next() < end) core.see(core.next(), signs);
}

// Gives stacks for a proof; returns whether it was complete before stacks were wanted no more.
bool prove(HangCore& core, const Signs& signs, const std::function<std::vector<WorkerStacks>(int)>& stacks,
           const std::function<WorkerActivity(int)>& activity) {
  for (int number = 0; core.wants_stacks(); ++number) {
    if (core.prove(core.next(), stacks(number), {{0, activity(number)}})) return true;
    core.see(core.next(), signs);
  }
  return false;
}

WorkerActivity idle(int) { return {{{kMain, milliseconds(5)}, {kOther, milliseconds(5)}}, 0}; }
WorkerActivity both_busy(int number) { return {{{kMain, seconds(number)}, {kOther, seconds(number)}}, 0}; }

const Signs kSilent = {{{0}, {1}}, 0};

HangCore silent_for_its_timeout() {
  HangCore core(seconds(10));
  core.begin(kStart);
  see_until(core, kStart + seconds(30), kSilent);
  REQUIRE(core.wants_stacks());
  return core;
}

}  // namespace

TEST_CASE("hang core: stacks are wanted once there was no sign for the timeout", "[launcher][unit]") {
  HangCore core(seconds(10));
  core.begin(kStart);
  see_until(core, kStart + seconds(9), kSilent);
  CHECK_FALSE(core.wants_stacks());
  Signs signs = kSilent;
  signs.output = 1;  // a byte of output
  core.see(kStart + seconds(9), signs);
  see_until(core, kStart + seconds(18), signs);
  CHECK_FALSE(core.wants_stacks());
  signs.workers[1].written = 1;  // a byte in a file
  core.see(kStart + seconds(18), signs);
  see_until(core, kStart + seconds(27), signs);
  CHECK_FALSE(core.wants_stacks());
  signs.workers.pop_back();  // a worker that has ended
  core.see(kStart + seconds(27), signs);
  see_until(core, kStart + seconds(36), signs);
  CHECK_FALSE(core.wants_stacks());
  ++signs.workers[0].calls;  // a collective
  core.see(kStart + seconds(36), signs);
  see_until(core, kStart + seconds(45), signs);
  CHECK_FALSE(core.wants_stacks());
  see_until(core, kStart + seconds(60), signs);
  CHECK(core.wants_stacks());
  CHECK(core.last_sign() == kStart + seconds(36));
}

TEST_CASE("hang core: workers whose stacks stay as they are stand still, idle or in an endless loop",
          "[launcher][unit]") {
  for (const auto& activity : {idle, both_busy}) {
    HangCore core = silent_for_its_timeout();
    CHECK(prove(
        core, kSilent, [](int) { return in("loop"); }, activity));
    CHECK(core.has_told());
    CHECK_FALSE(core.wants_stacks());
  }
}

TEST_CASE("hang core: a worker works whose main thread is in another Python function", "[launcher][unit]") {
  HangCore core = silent_for_its_timeout();
  const auto stacks = [](int number) { return in(number % 2 == 0 ? "forward" : "backward"); };
  CHECK_FALSE(prove(core, kSilent, stacks, idle));
}

TEST_CASE("hang core: another thread counts if it uses a CPU", "[launcher][unit]") {
  const auto stacks = [](int number) { return in("backward", number % 2 == 0 ? "gemm" : "relu"); };
  HangCore works = silent_for_its_timeout();
  CHECK_FALSE(prove(works, kSilent, stacks, both_busy));
  HangCore wakes_up = silent_for_its_timeout();
  CHECK(prove(wakes_up, kSilent, stacks, idle));
}

TEST_CASE("hang core: a worker works that writes files", "[launcher][unit]") {
  HangCore core = silent_for_its_timeout();
  const auto writes = [](int number) { return WorkerActivity{{{kMain, milliseconds(5)}}, number * 100'000}; };
  CHECK_FALSE(prove(
      core, kSilent, [](int) { return in("save"); }, writes));
}

TEST_CASE("hang core: a busy thread that cannot be looked at is given the benefit of the doubt", "[launcher][unit]") {
  HangCore core = silent_for_its_timeout();
  const auto unreadable = [](int) {
    return std::vector<WorkerStacks>{{0, kMain, {{kMain, "train", "runs", {}, {}}}, {"eu-stack: no right"}}};
  };
  CHECK_FALSE(prove(core, kSilent, unreadable, both_busy));
}

TEST_CASE("hang core: if all workers show steps, the oldest step counts and nothing else is needed",
          "[launcher][unit]") {
  HangCore core(seconds(10));
  core.begin(kStart);
  Signs signs = {{{0, 5}, {1, 5}}, 0};
  core.see(kStart, signs);
  for (int second = 1; second < 10; ++second) {
    signs.workers[0].step_at = 5 + second;  // rank 0 goes on, rank 1 does not
    core.see(kStart + seconds(second), signs);
  }
  CHECK_FALSE(core.wants_stacks());
  core.see(kStart + seconds(10), signs);
  CHECK(core.wants_stacks());
  CHECK(core.prove(kStart + seconds(10), in("forward"), {}));
  signs.workers[1].step_at = 20;
  core.see(kStart + seconds(11), signs);
  CHECK_FALSE(core.has_told());
}

TEST_CASE("hang core: the same hang is found once, and another one only after a sign", "[launcher][unit]") {
  HangCore core = silent_for_its_timeout();
  REQUIRE(prove(
      core, kSilent, [](int) { return in("loop"); }, idle));
  see_until(core, kStart + seconds(100), kSilent);
  CHECK_FALSE(core.wants_stacks());
  Signs signs = kSilent;
  signs.output = 7;
  core.see(kStart + seconds(100), signs);
  CHECK_FALSE(core.has_told());
  see_until(core, kStart + seconds(200), signs);
  CHECK(core.wants_stacks());
}

TEST_CASE("hang core: time in which this process was stopped does not count", "[launcher][unit]") {
  HangCore core(seconds(10));
  core.begin(kStart);
  core.see(kStart + seconds(1), kSilent);
  core.see(kStart + seconds(100), kSilent);
  CHECK_FALSE(core.wants_stacks());
}

TEST_CASE("hang core: a process that a worker has started and that uses a CPU is work", "[launcher][unit]") {
  HangCore core = silent_for_its_timeout();
  CHECK_FALSE(prove(
      core, kSilent, [](int) { return in("get"); },
      [](int number) {
        WorkerActivity waits = idle(number);
        waits.children = milliseconds(100 * number);
        return waits;
      }));
}

// A job of an hour in which rank 0 does for minutes what rank 1 waits for, and nothing is printed for longer than the
// timeout.
TEST_CASE("hang core: an hour of a healthy but uneven job has no verdict", "[launcher][unit]") {
  enum Phase { Validates, Compiles, CompilesInProcesses, SavesCheckpoint, LongCall, Phases };
  HangCore core(seconds(30));
  core.begin(kStart);
  Signs signs = kSilent;
  int proofs = 0;
  for (auto now = core.next(); now < kStart + std::chrono::hours(1); now = core.next()) {
    const auto passed = std::chrono::duration_cast<milliseconds>(now - kStart);
    const auto phase = static_cast<Phase>(passed / std::chrono::minutes(3) % Phases);
    const auto number = static_cast<int>(passed / milliseconds(100));
    signs.output = static_cast<std::uint64_t>(passed / std::chrono::minutes(3));  // a line at the end of each
    core.see(now, signs);
    if (!core.wants_stacks()) continue;
    ++proofs;
    WorkerActivity activity = idle(0);
    std::string main = "wait", other = "wait";
    switch (phase) {
      case Validates:
        main = number % 2 == 0 ? "forward" : "metric";
        break;
      case Compiles:
        other = number % 2 == 0 ? "parse" : "emit";
        activity = both_busy(number);
        break;
      case CompilesInProcesses:
        activity.children = milliseconds(90 * number);
        break;
      case SavesCheckpoint:
        activity.file_bytes = 1'000'000LL * number;
        break;
      default:  // one call, which takes less than the time until it would be proved
        main = passed % std::chrono::minutes(3) < seconds(35) ? "sort" : number % 2 == 0 ? "read" : "append";
        break;
    }
    REQUIRE_FALSE(core.prove(now, in(main, other), {{0, activity}}));
  }
  CHECK(proofs > 50);
  CHECK_FALSE(core.has_told());
}
