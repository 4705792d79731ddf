// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/round_end.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <string>

#include "tests/rendezvous/coordinator/worker_failure.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Node a with its failures, in a round of two workers.
Node node_of(std::vector<WorkerFailure> failures) {
  Node node;
  node.state.host = node.state.incarnation = "a";
  node.state.slots = 2;
  node.state.failures = std::move(failures);
  node.seat = 0;
  return node;
}

}  // namespace

TEST_CASE(
    "round end: failures go on with a restart while the budget lasts, and end the job with the cause's code after",
    "[rendezvous][unit]") {
  RoundEnd end({.id = "j", .max_restarts = 1});
  const Roster roster({});
  for (const bool goes_on : {true, false}) {
    const Node node = node_of({failure_of(1, {.code = 7}, 5)});
    end.begin_round();
    end.note_report({}, node);
    end.stop() = end.stop_for(node).value();
    CHECK(end.stop().trigger == Trigger::Failure);
    CHECK(end.stop().dead == std::vector<int>{1});
    Directive exit;
    CHECK(end.goes_on({}, roster, exit) == goes_on);
    CHECK(exit.why == Why::WorkerFailed);
    CHECK(end.restarts() == 1);
    if (!goes_on) CHECK(exit.exit_code == 7);
  }
}

TEST_CASE("round end: a loss explains failures that were noticed up to a second before", "[rendezvous][unit]") {
  for (const auto& [later, why] : {std::pair(seconds(1), Why::StoreLost), std::pair(seconds(2), Why::WorkerFailed)}) {
    RoundEnd end({.id = "j", .max_restarts = 0});
    const Node node = node_of({failure_of(1, {.code = 7}, 5)});
    end.note_report(TimePoint(), node);
    end.stop() = end.stop_for(node).value();
    end.note_loss(TimePoint() + later, Why::StoreLost, "the store is gone");
    Directive exit;
    CHECK_FALSE(end.goes_on({}, Roster({}), exit));
    CHECK(exit.why == why);
    CHECK(exit.exit_code == (why == Why::StoreLost ? 75 : 7));
  }
}

TEST_CASE("coordinator: the cause is the worker that died first, and a crash before the exits it provoked",
          "[rendezvous][unit]") {
  const auto killed = failure_of(1, {.signal = SIGKILL}, 6);
  const auto exited = failure_of(0, {.code = 1}, 5);
  CHECK(cause_of({exited, killed})->rank == 1);  // both were dying when the first was noticed
  CHECK(cause_of({exited, failure_of(1, {.signal = SIGABRT}, 90, false)})->rank == 0);  // that one came later
  auto stopped = failure_of(2, {.signal = SIGTERM}, 1);
  stopped.stopped_by_ddprun = true;
  CHECK(cause_of({stopped, exited})->rank == 0);
  auto elsewhere = failure_of(3, {.signal = SIGABRT}, 50);
  elsewhere.host = "b";
  CHECK(cause_of({exited, elsewhere})->rank == 0);  // workers that lose a peer end like this
  elsewhere.status.signal = SIGKILL;
  CHECK(cause_of({exited, elsewhere})->rank == 3);  // they do not end like this
  CHECK(cause_of({}) == nullptr);
}

TEST_CASE("coordinator: of failures on one node the cause is the earliest, though another one was noticed before",
          "[rendezvous][unit]") {
  using ddp::rendezvous::WallTime;
  auto noticed = failure_of(0, {.code = 1}, 5), earlier = failure_of(1, {.code = 2}, 6);
  noticed.time = WallTime(std::chrono::seconds(3));
  earlier.time = WallTime(std::chrono::seconds(2));
  CHECK(cause_of({noticed, earlier})->rank == 1);
  auto elsewhere = earlier;
  elsewhere.host = "b";
  CHECK(cause_of({noticed, elsewhere})->rank == 0);  // clocks of two nodes are not compared
  earlier.stopped_by_ddprun = true;
  CHECK(cause_of({noticed, earlier})->rank == 0);
}

TEST_CASE("coordinator: a crash is the cause even if the abort of its peer is reported first", "[rendezvous][unit]") {
  const auto died = [](const std::string& host, int signal) {
    return WorkerFailure{.host = host, .status = {.signal = signal}, .already_exiting = true};
  };
  CHECK(cause_of({died("b", SIGABRT), died("c", SIGSEGV)})->host == "c");
  CHECK(cause_of({died("b", SIGABRT), died("c", SIGABRT)})->host == "b");
}
