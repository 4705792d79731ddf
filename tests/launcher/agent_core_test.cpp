// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent_core.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::ExitStatus;
using ddp::rendezvous::WallTime;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// An agent of two workers with 5 s of grace, and the actions of its last step.
struct Fixture {
  AgentCore core{{.job = {.id = "j"}, .incarnation = "i", .host = "a", .workers = 2, .shutdown_timeout = seconds(5)}};
  TimePoint now{};
  std::vector<AgentAction> actions;

  void step(const AgentEvent& event) {
    actions.clear();
    core.step(now, event, actions);
  }
  template <typename Action>
  const Action* find() const {
    for (const AgentAction& action : actions) {
      if (const auto* found = std::get_if<Action>(&action)) return found;
    }
    return nullptr;
  }
  void run(int round, int base_rank = 0) {
    Directive directive{.kind = Directive::Kind::Run, .round = round};
    directive.assignment.base_rank = base_rank;
    step(DirectiveArrived{directive});
    REQUIRE(find<StartWorkers>());
    step(WorkersStarted{{100, 101}});
  }
  void stop(int round, int signal = SIGTERM) {
    step(DirectiveArrived{{.kind = Directive::Kind::Stop, .round = round, .stop_signal = signal}});
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
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1}});
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
  REQUIRE(agent.find<Report>());
  CHECK(agent.find<Report>()->state.phase == WorkersPhase::Idle);
  CHECK(agent.find<Report>()->state.succeeded);
}

TEST_CASE("agent: a failure is reported at once and stops nothing by itself", "[launcher][unit]") {
  Fixture agent;
  agent.run(1, 4);
  agent.exit(1, {.code = 7});
  REQUIRE(agent.actions.size() == 1);
  const auto& state = agent.find<Report>()->state;
  REQUIRE(state.failures.size() == 1);
  CHECK(state.failures[0].rank == 5);
  CHECK(state.failures[0].status.code == 7);
  CHECK_FALSE(state.failures[0].stopped_by_ddprun);
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

TEST_CASE("agent: after the grace period it kills, after ten more seconds it gives up", "[launcher][unit]") {
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
  REQUIRE(agent.find<Report>());
  CHECK(agent.find<Report>()->state.unkillable == std::vector<int>{100, 101});
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Exit, .round = 1, .exit_code = 0}});
  CHECK(agent.find<Leave>()->exit_code == 1);  // not a success
}

TEST_CASE("agent: the first stop signal is reported, the second kills", "[launcher][unit]") {
  Fixture agent;
  agent.run(1);
  agent.step(StopSignal{SIGINT});
  CHECK(agent.find<Report>()->state.stop_signal == SIGINT);
  CHECK_FALSE(agent.find<SignalWorkers>());
  agent.stop(1, SIGINT);
  CHECK(agent.find<SignalWorkers>()->signal == SIGINT);
  agent.step(StopSignal{SIGINT});
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
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1}});
  CHECK(agent.actions.empty());
}

TEST_CASE("agent: told to stop a round that it never started, it answers that it is idle there", "[launcher][unit]") {
  Fixture agent;
  agent.stop(1);
  REQUIRE(agent.find<Report>());
  CHECK(agent.find<Report>()->state.round == 1);
  CHECK(agent.find<Report>()->state.phase == WorkersPhase::Idle);
  CHECK_FALSE(agent.find<Report>()->state.succeeded);
}

TEST_CASE("agent: workers that could not be started are a failure with the reason", "[launcher][unit]") {
  Fixture agent;
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Run, .round = 1}});
  agent.step(SpawnFailed{"no more processes"});
  REQUIRE(agent.find<Report>());
  CHECK(agent.find<Report>()->state.phase == WorkersPhase::Idle);
  CHECK(agent.find<Report>()->state.failures.at(0).message == "no more processes");
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
