// SPDX-License-Identifier: BSD-3-Clause
// Starts, stops, deaths and what workers leave. agent_survivors_test.cpp has workers that stay, agent_hang_test.cpp
// hangs.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::ExitStatus;
using ddp::rendezvous::WallTime;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("workers: no round begins once their lease is over", "[launcher][unit]") {
  BareCores node;
  node.hear();
  node.pass(seconds(10));
  node.workers.run({.kind = Directive::Kind::Run, .round = 1, .assignment = place()});
  CHECK(node.workers.phase() == WorkersCore::Phase::Idle);
  REQUIRE(node.newest<SendReport>());
  CHECK(node.newest<SendReport>()->state.round == 1);
  CHECK_THAT(node.newest<SendReport>()->state.stopped_because, Catch::StartsWith("it had not heard"));
}

TEST_CASE("workers: while one lives a round waits for it, and a newer order takes the round's place",
          "[launcher][unit]") {
  BareCores node;
  for (const int round : {1, 2})
    node.workers.run({.kind = Directive::Kind::Run, .round = round, .assignment = place()});
  CHECK(node.workers.phase() == WorkersCore::Phase::Stopping);
  CHECK(node.workers.newest_round() == 2);
  node.workers.on(NeverStarted{});
  CHECK(node.workers.phase() == WorkersCore::Phase::Starting);
  CHECK(node.agent.state.round == 2);
}

TEST_CASE("workers: an end waits until they have ended, and the first end stands", "[launcher][unit]") {
  BareCores node;
  node.workers.run({.kind = Directive::Kind::Run, .round = 1, .assignment = place()});
  node.workers.end({.why = ddp::rendezvous::Why::CoordinatorLost}, "the first");
  node.workers.end({.why = ddp::rendezvous::Why::Failed}, "the second");
  CHECK(node.workers.is_leaving());
  node.workers.on(NeverStarted{});
  REQUIRE(node.newest<Leave>());
  CHECK(node.newest<Leave>()->directive.reason == "the first");
  CHECK(node.workers.phase() == WorkersCore::Phase::Left);
}

TEST_CASE("workers: what is due has a time, which moves by what the agent has slept", "[launcher][unit]") {
  BareCores node;
  node.workers.run({.kind = Directive::Kind::Run, .round = 1, .assignment = place()});
  CHECK_FALSE(node.workers.wake_at());
  node.workers.stop(SIGTERM);
  CHECK(node.workers.wake_at() == node.agent.now + seconds(30));
  node.workers.forgive_sleep(seconds(3));
  CHECK(node.workers.wake_at() == node.agent.now + seconds(33));
}

TEST_CASE("agent: starts its workers when told to run, once for each round", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  CHECK(agent.core.state().phase == WorkersPhase::Running);
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  CHECK(agent.actions.empty());
}

TEST_CASE("agent: workers that all succeed are cleared away, then reported as success", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.exit(0, {});
  CHECK(agent.actions.empty());
  agent.exit(1, {});
  REQUIRE(agent.find<ClearDescendants>());
  agent.step(AllGone{});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK(agent.find<SendReport>()->state.succeeded);
}

TEST_CASE("agent: a failure is reported at once and stops nothing by itself", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1, 4);
  agent.exit(1, {.code = 7});
  REQUIRE(agent.actions.size() == 1);
  const auto& state = agent.find<SendReport>()->state;
  REQUIRE(state.failures.size() == 1);
  CHECK(state.failures[0].rank == 5);
  CHECK(state.failures[0].status.code == 7);
  CHECK_FALSE(state.failures[0].stopped_by_ddprun);
}

TEST_CASE("agent: a worker that exits with 126 or 127 in its first second never ran", "[launcher][unit]") {
  for (const auto& [status, after, never_ran] :
       std::vector<std::tuple<ExitStatus, milliseconds, bool>>{{{.code = 127}, milliseconds(1000), true},
                                                               {{.code = 126}, milliseconds(0), true},
                                                               {{.code = 127}, milliseconds(1001), false},
                                                               {{.code = 1}, milliseconds(0), false},
                                                               {{.signal = SIGKILL}, milliseconds(0), false}}) {
    AgentOfTwo agent;
    agent.run(1);
    agent.now += after;
    agent.exit(1, status);
    CHECK(agent.core.state().failures.at(0).never_ran == never_ran);
  }
  AgentOfTwo agent;
  agent.run(1);
  agent.die(0, {.code = 127});
  CHECK(agent.core.state().failures.at(0).never_ran);
}

TEST_CASE("agent: a worker that is dying is reported at once, and once", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1, 4);
  agent.die(1, {.signal = SIGKILL}, {0});
  REQUIRE(agent.actions.size() == 1);
  CHECK(agent.find<SendReport>()->state.failures.at(0).rank == 5);
  CHECK(agent.find<SendReport>()->state.failures[0].pid == 101);
  CHECK(agent.find<SendReport>()->state.failures[0].status.signal == SIGKILL);
  CHECK(agent.find<SendReport>()->state.failures[0].already_exiting);
  agent.die(1, {.signal = SIGKILL});
  CHECK(agent.actions.empty());

  agent.step(WorkerExited{1, {.signal = SIGKILL}, {}, "", {}, "the kernel says so"});
  CHECK(agent.actions.empty());  // the other one lives, and the failure is known
  agent.exit(0, {.code = 1});
  REQUIRE(agent.find<ClearDescendants>());
  const auto& failures = agent.core.state().failures;
  REQUIRE(failures.size() == 2);
  CHECK(failures[0].out_of_memory == "the kernel says so");
  CHECK(failures[0].time == WallTime(milliseconds(2)));  // when the agent learned of it
  CHECK(failures[1].already_exiting);                    // as it was when the first one was noticed
}

TEST_CASE("agent: a worker that dies while it is being stopped is reported only when it has ended",
          "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.stop(1);
  agent.die(1, {.signal = SIGTERM});
  CHECK(agent.actions.empty());
  CHECK(agent.core.state().failures.empty());
  agent.exit(1, {.signal = SIGTERM});
  CHECK(agent.core.state().failures.at(0).stopped_by_ddprun);
}

TEST_CASE("agent: a worker that was reported as dying has failed, whatever its exit status is later",
          "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.die(0, {.code = 3});
  agent.exit(0, {});
  agent.exit(1, {});
  agent.step(AllGone{});
  REQUIRE(agent.find<SendReport>());
  CHECK_FALSE(agent.find<SendReport>()->state.succeeded);
  CHECK(agent.find<SendReport>()->state.failures.at(0).status.code == 3);
}

TEST_CASE("agent: workers that die after the stop are never a cause, those already dying may be", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.exit(0, {.code = 1}, {1});
  agent.stop(1);
  CHECK(agent.find<SignalWorkers>()->signal == SIGTERM);
  agent.exit(1, {.signal = SIGKILL});
  CHECK_FALSE(agent.core.state().failures[1].stopped_by_ddprun);

  AgentOfTwo other;
  other.run(1);
  other.exit(0, {.code = 1});
  other.stop(1);
  other.exit(1, {.signal = SIGTERM});
  CHECK(other.core.state().failures[1].stopped_by_ddprun);
}

TEST_CASE("agent: after the grace period it kills, after ten more seconds it gives up", "[launcher][unit][P18]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.stop(1);
  CHECK(agent.core.wake_at() == agent.now + seconds(5));
  agent.now += seconds(4);
  agent.step(Tick{});
  CHECK(agent.actions.empty());  // an early wake is harmless
  agent.now += seconds(1);
  agent.step(Tick{});
  CHECK(agent.find<KillDescendants>());
  agent.now += seconds(10);
  agent.step(Tick{});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.unkillable == std::vector<int>{100, 101});
  for (const int late : {0, 1}) {
    agent.exit(late, {.signal = SIGKILL});
    CHECK(agent.actions.empty());
  }
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Exit, .round = 1, .exit_code = 0}});
  CHECK(agent.find<Leave>()->exit_code == 1);  // not a success
}

TEST_CASE("agent: what stopped workers left has the rest of the grace period, then it is killed", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.stop(1);
  agent.now += seconds(3);
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGTERM});
  CHECK(agent.find<ClearDescendants>());
  CHECK(agent.core.wake_at() == agent.now + seconds(2));
  agent.now += seconds(2);
  agent.step(Tick{});
  CHECK(agent.find<LogLine>()->text ==
        "processes that the workers left did not end within 5 s (--shutdown-timeout): killing them");
  CHECK(agent.find<KillDescendants>());
  CHECK(agent.core.wake_at() == agent.now + seconds(10));
  agent.step(AllGone{});
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
}

TEST_CASE("agent: what a worker left that ended by itself is killed after 5 s, while the others go on",
          "[launcher][unit]") {
  AgentOfTwo agent({}, seconds(30));
  agent.run(1);
  agent.exit(0, {});
  agent.now += seconds(3);
  agent.exit(1, {.code = 1});
  CHECK(agent.find<ClearDescendants>());
  agent.now += seconds(2);
  agent.step(Tick{});
  REQUIRE(agent.find<KillLeftovers>());
  CHECK(agent.find<KillLeftovers>()->local_rank == 0);
  CHECK(agent.find<KillLeftovers>()->grace == seconds(5));
  agent.step(Tick{});
  CHECK(agent.actions.empty());  // once
  agent.now += seconds(3);
  agent.step(Tick{});
  CHECK(agent.find<LogLine>()->text ==
        "processes that the workers left did not end within 5 s of SIGTERM: killing them");
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: what a worker left before the stop has no more than its own time", "[launcher][unit]") {
  AgentOfTwo agent({}, seconds(30));
  agent.run(1);
  agent.exit(0, {.code = 1});
  agent.stop(1);
  agent.exit(1, {.signal = SIGTERM});
  agent.now += seconds(5);
  agent.step(Tick{});
  CHECK(agent.find<KillLeftovers>()->local_rank == 0);
  CHECK_FALSE(agent.find<KillDescendants>());
  CHECK(agent.core.wake_at() == agent.now + seconds(25));
}

TEST_CASE("agent: what the workers left is killed at once where they would be", "[launcher][unit]") {
  struct Lingering : AgentOfTwo {
    Lingering() {
      run(1);
      stop(1);
      exit(0, {.signal = SIGTERM});
      exit(1, {.signal = SIGTERM});
    }
  };
  Lingering told;
  told.stop(1, SIGKILL);
  CHECK(told.find<KillDescendants>());
  Lingering guardian;
  guardian.step(GuardianGone{});
  CHECK(guardian.find<KillDescendants>());
  AgentOfTwo killed;
  killed.run(1);
  killed.stop(1, SIGKILL);
  killed.exit(0, {.signal = SIGKILL});
  killed.exit(1, {.signal = SIGKILL});
  CHECK(killed.find<ClearDescendants>());
  CHECK(killed.core.wake_at() == killed.now + seconds(10));
}

TEST_CASE("agent: where a user's signal has not ended the workers after 2 s, a line says how long that may take",
          "[launcher][unit]") {
  AgentOfTwo agent("", seconds(30));
  agent.run(1);
  SECTION("once, and how to kill them") {
    agent.step(StopSignal{SIGINT});
    agent.stop(1, SIGINT);
    agent.exit(0, {});
    REQUIRE(agent.core.wake_at() == agent.now + seconds(2));
    agent.now += seconds(2);
    agent.step(Tick{});
    REQUIRE(agent.find<LogLine>());
    CHECK(agent.find<LogLine>()->text ==
          "waiting for 1 worker to end, for another 28 s at most (--shutdown-timeout); another SIGINT (Ctrl-C) kills "
          "them at once");
    agent.now += seconds(20);
    agent.step(Tick{});
    CHECK(agent.actions.empty());
  }
  SECTION("not if they were killed meanwhile, or nobody has sent a signal") {
    const bool is_killed = GENERATE(true, false);
    if (is_killed) agent.step(StopSignal{SIGINT});
    agent.stop(1, SIGINT);
    if (is_killed) agent.step(StopSignal{SIGINT});
    agent.now += seconds(2);
    agent.step(Tick{});
    CHECK(agent.actions.empty());
  }
}

TEST_CASE("agent: told to kill at once, it gives no grace", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.stop(1);
  agent.stop(1, SIGKILL);
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: told to stop a round that it never started, it answers that it is idle there", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.stop(1);
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.round == 1);
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK_FALSE(agent.find<SendReport>()->state.succeeded);
}

TEST_CASE("agent: workers that could not be started are a failure with the reason", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  agent.step(NeverStarted{"no more processes"});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK(agent.find<SendReport>()->state.failures.at(0).message == "no more processes");
}

TEST_CASE("agent: a start that a stop overtook is no failure, and the node is idle", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  agent.stop(1);
  REQUIRE(agent.find<SignalWorkers>());
  agent.step(NeverStarted{});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK_FALSE(agent.find<SendReport>()->state.succeeded);
  CHECK(agent.find<SendReport>()->state.failures.empty());
  agent.run(2);  // and it goes on
}

TEST_CASE("agent: last words arrive with the final report", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.exit(1, {.code = 2});
  agent.exit(0, {});
  agent.step(AllGone{{{}, {.message = "error file", .stderr_tail = {"a", "b"}}}});
  const auto& failure = agent.core.state().failures.at(0);
  CHECK(failure.message == "error file");
  CHECK(failure.stderr_tail == std::vector<std::string>{"a", "b"});
}

TEST_CASE("agent: a rank that lost its peer learns that the peer had ended with 0, and when its stdin was empty",
          "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1, 4);
  const bool was_exiting = GENERATE(false, true);
  if (!was_exiting) agent.exit(0, {});
  agent.exit(1, {.code = 1}, was_exiting ? std::vector<int>{0} : std::vector<int>{});
  agent.stop(1);
  if (was_exiting) agent.exit(0, {});
  SECTION("lost") {
    agent.step(AllGone{{{}, {.message = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"}}});
    CHECK(agent.core.state().failures.at(0).hint.starts_with("rank 4 had already exited with code 0"));
  }
  SECTION("stdin") {
    agent.step(AllGone{{{}, {.message = "EOFError: EOF when reading a line", .has_stdin = false}}});
    CHECK(agent.core.state().failures.at(0).hint.starts_with("its stdin is empty"));
  }
}

TEST_CASE("agent: a worker failed when its error file says so, if that is earlier than its death was noticed",
          "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.exit(0, {.code = 1});
  agent.exit(1, {.code = 1});
  agent.stop(1);
  agent.step(AllGone{{{.failed_by = WallTime(milliseconds(2))}, {.failed_by = WallTime(milliseconds(-1))}}});
  CHECK(agent.core.state().failures.at(0).time == WallTime(milliseconds(1)));
  CHECK(agent.core.state().failures.at(1).time == WallTime(milliseconds(-1)));
}

TEST_CASE("agent: the final report names the files of the worker that failed", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.exit(1, {.code = 2});
  CHECK(agent.find<SendReport>()->state.failures.at(0).stderr_log.empty());  // its streams are still read
  agent.exit(0, {});
  agent.step(AllGone{{{.stderr_log = "/logs/0/stderr.log"},
                      {.stderr_log = "/logs/1/stderr.log", .flight_recorder = "/logs/1/recorder.json"}}});
  REQUIRE(agent.find<SendReport>());
  const auto& failure = agent.find<SendReport>()->state.failures.at(0);
  CHECK(failure.stderr_log == "/logs/1/stderr.log");
  CHECK(failure.flight_recorder == "/logs/1/recorder.json");
}

TEST_CASE("agent: workers killed by a stop that another node caused are not a cause", "[launcher][unit]") {
  LinkedAgent agent;
  Directive stop = LinkedAgent::directive(Directive::Kind::Stop, 1);
  stop.stop_signal = SIGTERM;
  agent.step(DirectiveArrived{stop, {1}});
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGSEGV});
  CHECK(agent.core.state().failures.at(0).stopped_by_ddprun);
  CHECK_FALSE(agent.core.state().failures.at(1).stopped_by_ddprun);  // it was dying before
}

TEST_CASE("agent: a suspended job's workers are stopped until it goes on, also those that start meanwhile",
          "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.step(Suspend{});
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK_FALSE(agent.find<SuspendWorkers>()->is_over);
  agent.step(Suspend{.is_over = true});
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK(agent.find<SuspendWorkers>()->is_over);

  AgentOfTwo idle;
  idle.step(Suspend{});
  CHECK(idle.actions.empty());
  idle.run(1);
  CHECK(idle.find<SuspendWorkers>());
}

TEST_CASE("agent: workers that are to end are resumed for it, and not suspended", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.step(Suspend{});
  agent.stop(1);
  CHECK(agent.find<SignalWorkers>());
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK(agent.find<SuspendWorkers>()->is_over);

  AgentOfTwo stopping;
  stopping.run(1);
  stopping.stop(1);
  CHECK_FALSE(stopping.find<SuspendWorkers>());
  stopping.step(Suspend{});
  CHECK(stopping.actions.empty());
}
