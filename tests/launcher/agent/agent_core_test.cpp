// SPDX-License-Identifier: BSD-3-Clause
// What an agent obeys, and when it leaves.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <utility>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("agent: the first stop signal is reported, the second kills", "[launcher][unit]") {
  AgentOfTwo agent;
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
    AgentOfTwo agent;
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
  AgentOfTwo agent;
  agent.run(1);
  agent.step(StopSignal{SIGTERM});
  agent.stop(1, SIGTERM);
  agent.step(StopSignal{SIGINT});
  CHECK(agent.find<KillDescendants>());
}

TEST_CASE("agent: the second signal is reported to the coordinator too, for the other nodes", "[launcher][unit]") {
  AgentOfTwo agent;
  agent.run(1);
  agent.step(StopSignal{SIGINT});
  agent.step(StopSignal{SIGINT});
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.stop_signal == SIGKILL);
  CHECK_FALSE(agent.find<Leave>());
}

TEST_CASE("agent: leaves when told, but only after its workers are gone", "[launcher][unit]") {
  AgentOfTwo agent;
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
  AgentOfTwo agent;
  agent.run(1);
  agent.step(GuardianGone{});
  CHECK(agent.find<KillDescendants>());
  agent.exit(0, {.signal = SIGKILL});
  agent.exit(1, {.signal = SIGKILL});
  agent.step(AllGone{});
  CHECK(agent.find<Leave>()->exit_code == 128 + SIGKILL);
}

TEST_CASE("agent: a directive about an older round is ignored", "[launcher][unit]") {
  AgentOfTwo agent;
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
  AgentOfTwo agent;
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
    AgentOfTwo agent("10.0.0.1:29500");
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
  AgentOfTwo running, failed, succeeded;
  for (AgentOfTwo* agent : {&running, &failed, &succeeded}) agent->run(1);
  running.step(DirectiveArrived{success});
  for (const int local_rank : {0, 1}) {
    running.exit(local_rank, {.signal = SIGTERM});
    failed.exit(local_rank, {.code = local_rank});
    succeeded.exit(local_rank, {});
  }
  for (AgentOfTwo* agent : {&running, &failed, &succeeded}) agent->step(AllGone{});
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

TEST_CASE("agent: a stop signal that the coordinator does not answer within 2 s is carried out alone",
          "[launcher][unit]") {
  LinkedAgent agent;
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

TEST_CASE("agent: one that leaves by itself never reports that it is idle and stays", "[launcher][unit]") {
  AgentOfTwo agent;
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
