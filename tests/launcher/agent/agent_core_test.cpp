// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/agent_core.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <tuple>
#include <vector>

#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::ExitStatus;
using ddp::rendezvous::WallTime;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// The place in a round of a node with two workers.
ddp::rendezvous::Assignment place(int base_rank = 0) {
  return {
      .node_count = 1, .base_rank = base_rank, .world_size = base_rank + 2, .role_world_size = 2, .max_restarts = 3};
}

// An agent with two workers, and 5 s of grace by default, and the actions of its last step.
struct Fixture : SteppedAgent {
  explicit Fixture(std::string coordinator = "", seconds shutdown_timeout = seconds(5))
      : SteppedAgent({.job = {.id = "j", .max_restarts = 3},
                      .incarnation = "i",
                      .host = "a",
                      .workers = 2,
                      .coordinator = std::move(coordinator),
                      .join_timeout = seconds(60),
                      .shutdown_timeout = shutdown_timeout}) {
    step(LinkUp{});
  }

  void run(int round, int base_rank = 0) {
    Directive directive{.kind = Directive::Kind::Run, .round = round};
    directive.assignment = place(base_rank);
    step(DirectiveArrived{directive});
    REQUIRE(find<StartWorkers>());
    step(WorkersStarted{{100, 101}});
  }
  void stop(int round, int signal = SIGTERM) {
    step(DirectiveArrived{{.kind = Directive::Kind::Stop, .round = round, .stop_signal = signal}});
  }
  void die(int local_rank, ExitStatus status, std::vector<int> exiting = {}) {
    step(WorkerDying{local_rank, status, WallTime(milliseconds(2)), std::move(exiting)});
  }
  void exit(int local_rank, ExitStatus status, std::vector<int> exiting = {}) {
    step(WorkerExited{local_rank, status, WallTime(milliseconds(1)), "", std::move(exiting)});
  }
};

}  // namespace

TEST_CASE("agent: starts its workers when told to run, once for each round", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  CHECK(agent.core.state().phase == WorkersPhase::Running);
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  CHECK(agent.actions.empty());
}

TEST_CASE("agent: workers that all succeed are cleared away, then reported as success", "[launcher][unit]") {
  Fixture agent;
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
  Fixture agent;
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
    Fixture agent;
    agent.run(1);
    agent.now += after;
    agent.exit(1, status);
    CHECK(agent.core.state().failures.at(0).never_ran == never_ran);
  }
  Fixture agent;
  agent.run(1);
  agent.die(0, {.code = 127});
  CHECK(agent.core.state().failures.at(0).never_ran);
}

TEST_CASE("agent: a worker that is dying is reported at once, and once", "[launcher][unit]") {
  Fixture agent;
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
  Fixture agent;
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
  Fixture agent;
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
  Fixture agent;
  agent.run(1);
  agent.exit(0, {.code = 1}, {1});
  agent.stop(1);
  CHECK(agent.find<SignalWorkers>()->signal == SIGTERM);
  agent.exit(1, {.signal = SIGKILL});
  CHECK_FALSE(agent.core.state().failures[1].stopped_by_ddprun);

  Fixture other;
  other.run(1);
  other.exit(0, {.code = 1});
  other.stop(1);
  other.exit(1, {.signal = SIGTERM});
  CHECK(other.core.state().failures[1].stopped_by_ddprun);
}

TEST_CASE("agent: after the grace period it kills, after ten more seconds it gives up", "[launcher][unit][P18]") {
  Fixture agent;
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
  Fixture agent;
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
  Fixture agent({}, seconds(30));
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
  Fixture agent({}, seconds(30));
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
  struct Lingering : Fixture {
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
  Fixture killed;
  killed.run(1);
  killed.stop(1, SIGKILL);
  killed.exit(0, {.signal = SIGKILL});
  killed.exit(1, {.signal = SIGKILL});
  CHECK(killed.find<ClearDescendants>());
  CHECK(killed.core.wake_at() == killed.now + seconds(10));
}

TEST_CASE("agent: the first stop signal is reported, the second kills", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(StopSignal{SIGINT});
  CHECK(agent.find<SendReport>()->state.stop_signal == SIGINT);
  CHECK_FALSE(agent.find<SignalWorkers>());
  agent.stop(1, SIGINT);
  CHECK(agent.find<SignalWorkers>()->signal == SIGINT);
  agent.step(StopSignal{SIGINT});
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: a signal that comes again within 2 s is the same request, unless it is SIGINT", "[launcher][unit]") {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Fixture agent;
    agent.run(1);
    agent.step(StopSignal{signal});
    agent.stop(1, signal);
    agent.step(StopSignal{signal});
    agent.now += milliseconds(1999);
    agent.step(StopSignal{SIGTERM});
    CHECK(agent.actions.empty());
    CHECK(agent.core.state().stop_signal == signal);
    agent.now += milliseconds(1);
    agent.step(StopSignal{signal});
    CHECK(agent.find<KillDescendants>());
  }
  Fixture agent;
  agent.run(1);
  agent.step(StopSignal{SIGTERM});
  agent.stop(1, SIGTERM);
  agent.step(StopSignal{SIGINT});
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: where a user's signal has not ended the workers after 2 s, a line says how long that may take",
          "[launcher][unit]") {
  Fixture agent("", seconds(30));
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

TEST_CASE("agent: the second signal is reported to the coordinator too, for the other nodes", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(StopSignal{SIGINT});
  agent.step(StopSignal{SIGINT});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.stop_signal == SIGKILL);
  CHECK_FALSE(agent.find<Leave>());
}

TEST_CASE("agent: told to kill at once, it gives no grace", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.stop(1);
  agent.stop(1, SIGKILL);
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: leaves when told, but only after its workers are gone", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Exit, .round = 1, .exit_code = 3}});
  CHECK(agent.find<SignalWorkers>());
  CHECK_FALSE(agent.find<Leave>());
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGTERM});
  agent.step(AllGone{});
  REQUIRE(agent.find<Leave>());
  CHECK(agent.find<Leave>()->exit_code == 3);
  agent.step(GuardianGone{});
  CHECK(agent.actions.empty());  // once left, nothing more
}

TEST_CASE("agent: without its guardian it kills at once and leaves", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(GuardianGone{});
  CHECK(agent.find<KillDescendants>());
  agent.exit(0, {.signal = SIGKILL});
  agent.exit(1, {.signal = SIGKILL});
  agent.step(AllGone{});
  CHECK(agent.find<Leave>()->exit_code == 128 + SIGKILL);
}

TEST_CASE("agent: a directive about an older round is ignored", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.exit(0, {.code = 1});
  agent.exit(1, {.code = 1});
  agent.step(AllGone{});
  agent.run(2);
  agent.stop(1);
  CHECK(agent.actions.empty());
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  CHECK(agent.actions.empty());
}

TEST_CASE("agent: a directive that is older than a round that waits does not revoke it", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.stop(1);
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 2, .assignment = place()}});
  agent.stop(1);
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGTERM});
  agent.step(AllGone{});
  CHECK(agent.find<StartWorkers>());
}

TEST_CASE("agent: a place that cannot be its own ends it, and starts no worker", "[launcher][unit]") {
  const auto end_with = [](ddp::rendezvous::Assignment wrong) {
    Fixture agent("10.0.0.1:29500");
    agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = std::move(wrong)}});
    CHECK_FALSE(agent.find<StartWorkers>());
    const Leave* leave = agent.find<Leave>();
    return leave && leave->exit_code == 1 ? leave->directive.reason : "";
  };
  const std::string wrong = "the coordinator at 10.0.0.1:29500 gives this node what cannot be its own: ";
  auto one = place(), many = place(), role = place(), restarts = place(), more = place();
  one.world_size = 1;
  CHECK(end_with(one) == wrong + "2 workers from rank 0 of 1");
  role.role_world_size = 1;
  CHECK(end_with(role) == wrong + "2 workers from rank 0 of 2");
  many.node_count = 2;
  CHECK(end_with(many) == wrong + "2 nodes");
  restarts.max_restarts = 4;
  CHECK(end_with(restarts) == wrong + "0 restarts of 4");
  more.restart_count = 4;
  CHECK(end_with(more) == wrong + "4 restarts of 3");
}

TEST_CASE("agent: an end with code 0 counts only if its own workers have succeeded", "[launcher][unit]") {
  const Directive success{.kind = Directive::Kind::Exit, .round = 1, .reason = "all is well"};
  Fixture running, failed, succeeded;
  for (Fixture* agent : {&running, &failed, &succeeded}) agent->run(1);
  running.step(DirectiveArrived{success});
  for (const int local_rank : {0, 1}) {
    running.exit(local_rank, {.signal = SIGTERM});
    failed.exit(local_rank, {.code = local_rank});
    succeeded.exit(local_rank, {});
  }
  for (Fixture* agent : {&running, &failed, &succeeded}) agent->step(AllGone{});
  REQUIRE(running.find<Leave>());
  CHECK(running.find<Leave>()->exit_code == 1);
  failed.step(DirectiveArrived{success});
  REQUIRE(failed.find<Leave>());
  CHECK(failed.find<Leave>()->exit_code == 1);
  CHECK(failed.find<Leave>()->directive.reason ==
        "the coordinator says 'all is well', but not all workers of this node have succeeded");
  succeeded.step(DirectiveArrived{success});
  REQUIRE(succeeded.find<Leave>());
  CHECK(succeeded.find<Leave>()->exit_code == 0);
}

TEST_CASE("agent: told to stop a round that it never started, it answers that it is idle there", "[launcher][unit]") {
  Fixture agent;
  agent.stop(1);
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.round == 1);
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK_FALSE(agent.find<SendReport>()->state.succeeded);
}

TEST_CASE("agent: workers that could not be started are a failure with the reason", "[launcher][unit]") {
  Fixture agent;
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1, .assignment = place()}});
  agent.step(NeverStarted{"no more processes"});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Idle);
  CHECK(agent.find<SendReport>()->state.failures.at(0).message == "no more processes");
}

TEST_CASE("agent: a start that a stop overtook is no failure, and the node is idle", "[launcher][unit]") {
  Fixture agent;
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
  Fixture agent;
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
  Fixture agent;
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
  Fixture agent;
  agent.run(1);
  agent.exit(0, {.code = 1});
  agent.exit(1, {.code = 1});
  agent.stop(1);
  agent.step(AllGone{{{.failed_by = WallTime(milliseconds(2))}, {.failed_by = WallTime(milliseconds(-1))}}});
  CHECK(agent.core.state().failures.at(0).time == WallTime(milliseconds(1)));
  CHECK(agent.core.state().failures.at(1).time == WallTime(milliseconds(-1)));
}

TEST_CASE("agent: the final report names the files of the worker that failed", "[launcher][unit]") {
  Fixture agent;
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

namespace {

// An agent of a job of several nodes that runs round 1; the coordinator counts it as lost after 15 s without a word.
struct Linked : Fixture {
  Linked() : Fixture("10.0.0.1:29500") {
    step(DirectiveArrived{directive(Directive::Kind::Wait, 0)});
    step(DirectiveArrived{directive(Directive::Kind::Run, 1)});
    step(WorkersStarted{{100, 101}});
  }
  static Directive directive(Directive::Kind kind, int round) {
    Directive made;
    made.kind = kind;
    made.assignment = place();
    made.epoch = "e";
    made.lost_after = seconds(15);
    made.round = round;
    return made;
  }
  // Sends every Tick that is due until then: a late one would mean that this process was stopped.
  void tick_after(std::chrono::milliseconds time) {
    const TimePoint until = now + time;
    while (core.wake_at() && *core.wake_at() < until) {
      now = *core.wake_at();
      step(Tick{});
    }
    now = until;
    step(Tick{});
  }
  void die() {
    exit(0, {.signal = SIGKILL});
    exit(1, {.signal = SIGKILL});
    step(AllGone{});
  }
};

}  // namespace

TEST_CASE("agent: sends a heartbeat each second, and says nothing while it is answered", "[launcher][unit]") {
  Linked agent;
  for (int i = 0; i < 60; ++i) {
    agent.tick_after(seconds(1));
    REQUIRE(agent.find<SendHeartbeat>());
    REQUIRE(agent.actions.size() == 1);
    agent.step(BeatArrived{});
    REQUIRE(agent.core.wake_at() == agent.now + seconds(1));
  }
}

TEST_CASE("agent: a link that broke may come back for two seconds, then the workers are killed", "[launcher][unit]") {
  Linked agent;
  agent.step(LinkDown{"connection reset"});
  agent.tick_after(milliseconds(1999));
  CHECK_FALSE(agent.find<KillDescendants>());
  agent.step(LinkUp{});
  CHECK(agent.find<SendReport>());  // all of its state, on each new link
  agent.step(DirectiveArrived{Linked::directive(Directive::Kind::Run, 1)});
  agent.tick_after(seconds(5));
  CHECK_FALSE(agent.find<KillDescendants>());

  agent.step(BeatArrived{});  // it answers the heartbeat that was sent first
  agent.step(LinkDown{"connection reset"});
  CHECK(agent.core.wake_at() == agent.now + seconds(2));
  agent.tick_after(seconds(2));
  CHECK(agent.find<KillDescendants>());
  agent.die();
  agent.step(LinkUp{});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.stopped_because == "it had lost the coordinator (connection reset)");
  CHECK(agent.find<SendReport>()->state.failures.at(0).stopped_by_ddprun);
}

TEST_CASE("agent: a silent link is replaced after 5 s, its workers are killed after 10, it leaves after 15",
          "[launcher][unit]") {
  Linked agent;
  agent.tick_after(seconds(5));
  CHECK(agent.find<Reconnect>());
  agent.tick_after(seconds(4));
  CHECK_FALSE(agent.find<Reconnect>());
  agent.tick_after(seconds(1));
  CHECK(agent.find<KillDescendants>());
  agent.die();
  agent.tick_after(seconds(5));
  REQUIRE(agent.find<Leave>());
  CHECK(agent.find<Leave>()->exit_code == 75);
  CHECK(agent.find<Leave>()->directive.reason == "the coordinator at 10.0.0.1:29500 is gone: no word from it for 15 s");
}

TEST_CASE("agent: links that come up and break without a word are no coordinator", "[launcher][unit]") {
  Linked agent;
  for (int i = 0; i < 15; ++i) {
    REQUIRE_FALSE(agent.find<Leave>());
    agent.step(LinkDown{"closed by the coordinator"});
    agent.tick_after(seconds(1));
    agent.step(LinkUp{});
    CHECK_FALSE(agent.find<Reconnect>());
    if (i == 1) agent.die();
  }
  agent.tick_after(seconds(1));
  REQUIRE(agent.find<Leave>());
  CHECK_THAT(agent.find<Leave>()->directive.reason, Catch::StartsWith("the coordinator at 10.0.0.1:29500 is gone"));
}

TEST_CASE("agent: waits for its coordinator until the join deadline, with a line every 5 s", "[launcher][unit]") {
  Fixture agent("10.0.0.1:29500");
  agent.step(LinkDown{"closed"});
  agent.step(LinkFailed{"connection refused"});
  int lines = 0;
  while (!agent.find<Leave>()) {
    REQUIRE(agent.core.wake_at());
    REQUIRE(*agent.core.wake_at() > agent.now);
    agent.now = *agent.core.wake_at();
    agent.step(Tick{});
    if (const LogLine* line = agent.find<LogLine>(); line && lines++ == 0) {
      CHECK(line->text == "waiting for the coordinator at 10.0.0.1:29500: connection refused; 2 s of 60 s");
    }
  }
  CHECK(lines == 12);
  CHECK(agent.find<Leave>()->directive.reason ==
        "no coordinator at 10.0.0.1:29500 within 60 s (--rdzv-conf join_timeout): connection refused");
}

TEST_CASE("agent: once etcd names a node the join deadline is not shorter than a job that was killed is awaited",
          "[launcher][unit]") {
  AgentCore core({.job = {.id = "j"},
                  .incarnation = "i",
                  .host = "a",
                  .coordinator = "the node that etcd names",
                  .join_timeout = seconds(5),
                  .named_timeout = seconds(16)});
  TimePoint now{};
  std::vector<AgentAction> actions;
  const auto step = [&](const AgentEvent& event) { core.step(now, event, actions); };
  const auto left_after = [&](seconds time) {
    now = TimePoint() + time - milliseconds(1);
    step(Tick{});
    const bool had_left = core.phase() == AgentCore::Phase::Left;
    now = TimePoint() + time;
    step(Tick{});
    return !had_left && core.phase() == AgentCore::Phase::Left;
  };
  const auto reason = [&] { return std::get<Leave>(actions.back()).directive.reason; };
  step(LinkFailed{"connection refused"});
  SECTION("etcd names none") {
    CHECK(left_after(seconds(5)));
    CHECK(reason() ==
          "no coordinator at the node that etcd names within 5 s (--rdzv-conf join_timeout): connection refused");
  }
  SECTION("etcd names one, which is dead, then another one, which does not answer yet") {
    now += seconds(1);
    step(CoordinatorNamed{});
    now += seconds(4);
    step(CoordinatorNamed{});
    step(LinkUp{});
    CHECK(core.wake_at() == TimePoint() + seconds(21));
    CHECK(left_after(seconds(21)));
    CHECK(reason() ==
          "no coordinator at the node that etcd names within 21 s, longer than --rdzv-conf join_timeout, since etcd "
          "names "
          "a node: connection refused");
  }
  SECTION("it answers") {
    step(CoordinatorNamed{});
    step(LinkUp{});
    now += seconds(15);
    step(DirectiveArrived{{.kind = Directive::Kind::Wait, .epoch = "7"}});
    now += seconds(60);
    step(Tick{});
    CHECK(core.phase() == AgentCore::Phase::Idle);
  }
}

TEST_CASE("agent: a stop signal that the coordinator does not answer within 2 s is carried out alone",
          "[launcher][unit]") {
  Linked agent;
  agent.step(StopSignal{SIGTERM});
  CHECK(agent.find<SendReport>());
  CHECK_FALSE(agent.find<SignalWorkers>());
  agent.tick_after(seconds(2));
  REQUIRE(agent.find<SignalWorkers>());
  CHECK(agent.find<SignalWorkers>()->signal == SIGTERM);
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGTERM});
  agent.step(AllGone{});
  CHECK(agent.find<Leave>()->exit_code == 128 + SIGTERM);
  CHECK(agent.core.state().left);
}

TEST_CASE("agent: a coordinator of another epoch is not the one it serves", "[launcher][unit]") {
  Linked agent;
  Directive stranger = Linked::directive(Directive::Kind::Wait, 0);
  stranger.epoch = "f";
  agent.step(DirectiveArrived{stranger});
  CHECK(agent.find<SignalWorkers>());
  agent.die();
  CHECK(agent.find<Leave>()->exit_code == 75);
}

TEST_CASE("agent: workers killed by a stop that another node caused are not a cause", "[launcher][unit]") {
  Linked agent;
  Directive stop = Linked::directive(Directive::Kind::Stop, 1);
  stop.stop_signal = SIGTERM;
  agent.step(DirectiveArrived{stop, {1}});
  agent.exit(0, {.signal = SIGTERM});
  agent.exit(1, {.signal = SIGSEGV});
  CHECK(agent.core.state().failures.at(0).stopped_by_ddprun);
  CHECK_FALSE(agent.core.state().failures.at(1).stopped_by_ddprun);  // it was dying before
}

TEST_CASE("agent: one that leaves by itself never reports that it is idle and stays", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(GuardianGone{});
  agent.exit(0, {.signal = SIGKILL});
  agent.exit(1, {.signal = SIGKILL});
  agent.step(AllGone{});
  int reports = 0;
  for (const AgentAction& action : agent.actions) {
    if (const auto* report = std::get_if<SendReport>(&action)) {
      ++reports;
      CHECK(report->state.left);
      CHECK(report->state.phase == WorkersPhase::Idle);
    }
  }
  CHECK(reports == 1);
}

TEST_CASE("agent: a suspended job's workers are stopped until it goes on, also those that start meanwhile",
          "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(Suspend{});
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK_FALSE(agent.find<SuspendWorkers>()->is_over);
  agent.step(Suspend{.is_over = true});
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK(agent.find<SuspendWorkers>()->is_over);

  Fixture idle;
  idle.step(Suspend{});
  CHECK(idle.actions.empty());
  idle.run(1);
  CHECK(idle.find<SuspendWorkers>());
}

TEST_CASE("agent: workers that are to end are resumed for it, and not suspended", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(Suspend{});
  agent.stop(1);
  CHECK(agent.find<SignalWorkers>());
  REQUIRE(agent.find<SuspendWorkers>());
  CHECK(agent.find<SuspendWorkers>()->is_over);

  Fixture stopping;
  stopping.run(1);
  stopping.stop(1);
  CHECK_FALSE(stopping.find<SuspendWorkers>());
  stopping.step(Suspend{});
  CHECK(stopping.actions.empty());
}
