// SPDX-License-Identifier: BSD-3-Clause
// The lease: how long a node's workers may run without the coordinator. Each case is a fault that the simulator
// (tests/sim) found.
#include <catch2/catch.hpp>
#include <csignal>
#include <utility>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// An agent that runs round 1 of a job of several nodes. It counts as lost after 15 s of silence: its lease is 10 s.
struct LeasedAgent final : SteppedAgent {
  static AgentConfig config() {
    return {.job = {.id = "j", .max_nodes = 2},
            .incarnation = "i",
            .host = "a",
            .workers = 2,
            .coordinator = "10.0.0.1:29500"};
  }

  std::optional<TimePoint> deadman;  // as it is set

  explicit LeasedAgent(AgentConfig of = config()) : SteppedAgent(std::move(of)) {
    step(LinkUp{});
    tell(Directive::Kind::Run, 1);
    step(WorkersStarted{{100, 101}});
  }
  void step(const AgentEvent& event) override {
    SteppedAgent::step(event);
    for (const AgentAction& action : actions) {
      if (const auto* set = std::get_if<SetDeadman>(&action)) deadman = set->at;
    }
  }
  void tell(Directive::Kind kind, int round, std::vector<int> exiting = {}) {
    Directive directive{.kind = kind, .epoch = "e", .lost_after = seconds(15), .round = round, .stop_signal = SIGTERM};
    directive.assignment = {.node_count = 2, .world_size = 4, .role_world_size = 4};
    step(DirectiveArrived{directive, std::move(exiting)});
  }
};

}  // namespace

TEST_CASE("agent: a link that is up again counts when the coordinator has answered over it", "[launcher][unit]") {
  LeasedAgent agent;
  agent.step(LinkDown{"reset"});
  agent.wait(milliseconds(1900), false);
  agent.step(LinkUp{});
  agent.step(LinkDown{"reset"});
  agent.step(LinkUp{});
  agent.wait(milliseconds(100), false);
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: the lease is extended by answers, not by whatever the coordinator says", "[launcher][unit]") {
  LeasedAgent agent;
  for (int i = 0; i < 9; ++i) {
    agent.wait(seconds(1), false);
    CHECK_FALSE(agent.does<KillDescendants>());
    agent.tell(Directive::Kind::Wait, 1);
  }
  agent.wait(seconds(1), false);
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: at the end of the lease a node says that it ends its workers, also if these were quiet",
          "[launcher][unit]") {
  LeasedAgent agent;
  for (const int local_rank : {0, 1}) agent.step(WorkerStays{local_rank, true});
  agent.step(DirectiveArrived{{.kind = Directive::Kind::Stop,
                               .epoch = "e",
                               .lost_after = seconds(15),
                               .round = 1,
                               .stop_signal = SIGTERM,
                               .survivors_stay = true}});
  for (const int local_rank : {0, 1}) agent.step(WorkerQuiet{local_rank, 1});
  REQUIRE(agent.core.state().phase == WorkersPhase::Quiet);
  agent.wait(seconds(10), false);
  REQUIRE(agent.find<SendReport>());
  CHECK(agent.find<SendReport>()->state.phase == WorkersPhase::Stopping);
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: one heartbeat is unanswered at a time, so that an answer does not extend the lease too far",
          "[launcher][unit]") {
  LeasedAgent agent;
  agent.wait(seconds(1), false);
  REQUIRE(agent.does<SendHeartbeat>());
  const TimePoint asked = agent.now;
  agent.now += seconds(2);
  agent.step(Tick{});
  CHECK_FALSE(agent.does<SendHeartbeat>());
  agent.step(BeatArrived{});
  CHECK(agent.deadman == asked + seconds(10) + kKeeperWaits);
}

TEST_CASE("agent: the keeper's time is a moment after the end of the lease, and each answer moves it",
          "[launcher][unit]") {
  LeasedAgent agent;
  const TimePoint asked = agent.now;  // the new link's report
  CHECK(agent.deadman == asked + seconds(10) + kKeeperWaits);
  agent.wait(seconds(1), true);
  CHECK(agent.deadman == asked + seconds(11) + kKeeperWaits);
  agent.wait(seconds(5), false);
  CHECK_FALSE(agent.does<SetDeadman>());
  agent.wait(seconds(5), false);
  CHECK(agent.does<KillDescendants>());  // the agent runs, so it kills them itself
  CHECK(agent.deadman == std::nullopt);
}

TEST_CASE("agent: workers that the keeper killed while the agent was stopped have not failed", "[launcher][unit]") {
  LeasedAgent agent;
  agent.now += seconds(11);
  agent.step(WorkerExited{0, {.signal = SIGKILL}, {}, "", {}});
  CHECK(agent.core.state().stopped_because ==
        "ddprun's keeper killed them, since the agent did not run for 11 s (was it stopped, or its machine asleep?)");
  REQUIRE(agent.core.state().failures.size() == 1);
  CHECK(agent.core.state().failures[0].stopped_by_ddprun);
  CHECK(agent.does<KillDescendants>());  // what the keeper may have missed
  CHECK(agent.does<SendReport>());
}

TEST_CASE("agent: what a heartbeat and its answer take is what the link takes, until the link breaks",
          "[launcher][unit]") {
  LeasedAgent agent;
  CHECK_FALSE(agent.core.link_delay());
  const auto beat = [&agent](milliseconds takes) {
    while (!agent.does<SendHeartbeat>()) {
      agent.now = std::max(agent.now, agent.core.wake_at().value());
      agent.step(Tick{});
    }
    agent.now += takes;
    agent.step(BeatArrived{});
  };
  beat(milliseconds(70));
  CHECK(agent.core.link_delay() == LinkDelay{70'000, 1});
  beat(milliseconds(30));
  CHECK(agent.core.link_delay() == LinkDelay{30'000, 2});
  agent.step(BeatArrived{});  // answers nothing
  CHECK(agent.core.link_delay() == LinkDelay{30'000, 2});
  agent.step(LinkDown{"reset"});
  agent.step(LinkUp{});
  CHECK_FALSE(agent.core.link_delay());
}

TEST_CASE("agent: the coordinator's own agent has its lease from its own loop", "[launcher][unit]") {
  AgentConfig config = LeasedAgent::config();
  config.coordinator = "";
  LeasedAgent agent(std::move(config));
  agent.wait(seconds(60), false);
  CHECK_FALSE(agent.does<KillDescendants>());
  CHECK_FALSE(agent.does<SendHeartbeat>());
  CHECK(agent.deadman >= agent.now + seconds(9));
  agent.now += seconds(12);
  agent.step(Tick{});
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: while the machine sleeps, the grace period of stopping workers stands still", "[launcher][unit]") {
  LeasedAgent agent;
  agent.tell(Directive::Kind::Stop, 1);
  agent.wait(seconds(1), true);
  agent.now += seconds(8);
  agent.step(Tick{});
  agent.step(BeatArrived{});
  agent.wait(seconds(25), true);
  CHECK_FALSE(agent.does<KillDescendants>());
  agent.wait(seconds(6), true);
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: a round that lay unread while the agent was stopped is skipped", "[launcher][unit]") {
  LeasedAgent agent;
  agent.tell(Directive::Kind::Stop, 1);
  agent.step(WorkerExited{0, {.signal = SIGTERM}, {}, "", {}});
  agent.step(WorkerExited{1, {.signal = SIGTERM}, {}, "", {}});
  agent.step(AllGone{});
  agent.now += seconds(12);
  agent.tell(Directive::Kind::Run, 2);
  CHECK_FALSE(agent.does<StartWorkers>());
  REQUIRE(agent.does<SendReport>());
  CHECK(agent.core.state().round == 2);
  CHECK_FALSE(agent.core.state().stopped_because.empty());
}

TEST_CASE("agent: one that was stopped for long reads what it has received before it leaves", "[launcher][unit]") {
  LeasedAgent agent;
  agent.now += seconds(30);
  agent.step(Tick{});
  CHECK(agent.does<KillDescendants>());
  CHECK_FALSE(agent.does<Leave>());
  CHECK_FALSE(agent.does<Reconnect>());
  CHECK(agent.core.phase() == AgentCore::Phase::Killing);
}

TEST_CASE("agent: one that leaves without the coordinator names its own worker's failure", "[launcher][unit][N6]") {
  LeasedAgent agent;
  agent.step(WorkerExited{1, {.code = 3}, {}, "", {}});
  agent.wait(seconds(11), false);
  REQUIRE(agent.does<KillDescendants>());
  agent.step(WorkerExited{0, {.code = 0, .signal = SIGKILL}, {}, "", {}});
  agent.step(AllGone{});
  agent.wait(seconds(5), false);
  REQUIRE(agent.does<Leave>());
  CHECK(std::get<Leave>(agent.actions.back()).directive.reason ==
        "the coordinator at 10.0.0.1:29500 is gone: no word from it for 15 s; "
        "before that, rank 1 on node a exited with code 3");
}

TEST_CASE("agent: its sleep is forgiven once, whatever it finds when it wakes", "[launcher][unit]") {
  LeasedAgent agent;
  agent.now += seconds(30);
  for (int i = 0; i < 3; ++i) agent.tell(Directive::Kind::Wait, 1);
  agent.step(LinkDown{"closed"});
  agent.step(WorkerExited{0, {.code = 1}, {}, "", {}});
  agent.step(WorkerExited{1, {.code = 1}, {}, "", {}});
  agent.step(AllGone{});
  agent.wait(seconds(16), false);
  CHECK(agent.does<Leave>());
}

TEST_CASE("agent: on its way out it still sends heartbeats, and its lease holds", "[launcher][unit]") {
  LeasedAgent agent;
  agent.step(StopSignal{SIGTERM});
  agent.wait(seconds(3), true);  // decides alone
  REQUIRE(agent.core.phase() == AgentCore::Phase::Stopping);
  agent.wait(seconds(2), true);
  CHECK(agent.does<SendHeartbeat>());
  agent.wait(seconds(12), false);
  CHECK(agent.does<KillDescendants>());
}

TEST_CASE("agent: a node that was told to leave gives its workers their grace, though the coordinator ends first",
          "[launcher][unit]") {
  LeasedAgent agent;
  agent.tell(Directive::Kind::Exit, 1);
  agent.step(LinkDown{"closed by the coordinator"});
  CHECK_FALSE(agent.deadman);
  agent.wait(seconds(29), false);
  CHECK_FALSE(agent.does<KillDescendants>());
  agent.wait(seconds(2), false);
  CHECK(agent.does<KillDescendants>());  // the grace is over
}

TEST_CASE("agent: workers that hung and then lost the coordinator were stopped because they hung", "[launcher][unit]") {
  AgentConfig config = LeasedAgent::config();
  config.on_hang = OnHang::Restart;
  LeasedAgent agent(config);
  agent.step(HangFound{"no output and no step for 5 s"});
  agent.step(LinkDown{"reset"});
  agent.wait(seconds(3), false);
  CHECK(agent.does<KillDescendants>());
  CHECK(agent.core.state().stopped_because == "no output and no step for 5 s");
}

TEST_CASE("agent: on the coordinator's node it does not decide alone after a signal", "[launcher][unit]") {
  AgentCore core({.job = {.id = "j"}, .incarnation = "i", .host = "a"});
  std::vector<AgentAction> actions;
  core.step({}, LinkUp{}, actions);
  core.step({}, StopSignal{SIGTERM}, actions);
  CHECK_FALSE(core.wake_at());
}

TEST_CASE("agent: without its head it stops its workers, says so, and leaves to make room for another agent",
          "[launcher][unit]") {
  const std::string reason = "its connection to the head has ended";
  LeasedAgent agent;
  agent.step(HeadGone{});
  REQUIRE(agent.does<SendReport>());
  CHECK(agent.core.state().stopped_because == reason);
  CHECK(agent.find<SignalWorkers>()->signal == SIGTERM);
  agent.step(HeadGone{});  // from the kernel and from above
  CHECK_FALSE(agent.does<SignalWorkers>());
  for (int worker = 0; worker < 2; ++worker) agent.step(WorkerExited{worker, {.signal = SIGTERM}, {}, "", {}});
  agent.step(AllGone{});
  REQUIRE(agent.find<Leave>());
  CHECK(agent.find<Leave>()->exit_code == 75);
  CHECK(agent.core.state().left);

  // A node whose workers have succeeded says nothing that would end the round.
  LeasedAgent done;
  for (int worker = 0; worker < 2; ++worker) done.step(WorkerExited{worker, {}, {}, "", {}});
  done.step(AllGone{});
  done.step(HeadGone{});
  CHECK(done.does<Leave>());
  CHECK(done.core.state().stopped_because.empty());
  // The end that the coordinator has told stands.
  LeasedAgent ending;
  ending.tell(Directive::Kind::Exit, 1);
  ending.step(HeadGone{});
  CHECK(ending.core.state().stopped_because.empty());
}

TEST_CASE("agent: it says at once that it kills its workers", "[launcher][unit]") {
  LeasedAgent agent;
  agent.step(GuardianGone{});
  REQUIRE(agent.does<SendReport>());
  CHECK(agent.core.state().stopped_because == "ddprun was killed");
}

TEST_CASE("agent: what was dying when the stop came, but not at the first failure, may be its consequence",
          "[launcher][unit]") {
  LeasedAgent agent;
  agent.step(WorkerExited{0, {.code = 1}, {}, "", {}});
  agent.tell(Directive::Kind::Stop, 1, {1});
  agent.step(WorkerExited{1, {.signal = SIGABRT}, {}, "", {}});
  const auto& failures = agent.core.state().failures;
  CHECK_FALSE(failures.at(1).already_exiting);
  CHECK_FALSE(failures.at(1).stopped_by_ddprun);
}
