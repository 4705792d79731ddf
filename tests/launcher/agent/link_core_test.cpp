// SPDX-License-Identifier: BSD-3-Clause
// Heartbeats, silence, broken links and how long a coordinator is looked for. agent_lease_test.cpp has the lease,
// agent_fence_test.cpp the epochs.
#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("link: the lease begins with the first directive, and is two thirds of the silence limit",
          "[launcher][unit]") {
  BareCores node;
  CHECK_FALSE(node.link.lease_until());
  node.hear();  // it answers the new link's report
  CHECK(node.link.lease_until() == node.agent.now + seconds(10));
  node.pass(seconds(9));
  node.hear();  // a word that answers nothing
  CHECK_FALSE(node.link.is_lease_over());
  node.pass(seconds(1));
  CHECK(node.link.is_lease_over());
  CHECK(node.link.why_lost() == "no word for 10 s");
}

TEST_CASE("link: a link that breaks ends the lease early, and a node that was told to leave has none",
          "[launcher][unit]") {
  BareCores node;
  node.hear();
  node.link.on(LinkDown{"reset"});
  CHECK(node.link.lease_until() == node.agent.now + seconds(2));
  CHECK(node.link.why_lost() == "reset");
  CHECK_FALSE(node.link.release());
  CHECK_FALSE(node.link.lease_until());
  CHECK(node.link.release());  // the first end stands
}

TEST_CASE("link: an older coordinator is fenced off, and costs one link", "[launcher][unit]") {
  BareCores node;
  node.hear("100", "job.7");
  const Directive older{.kind = Directive::Kind::Wait, .epoch = "99", .instance = "job.7"};
  CHECK(node.link.is_fenced_off(older));
  CHECK(node.newest<Reconnect>());
  node.actions.clear();
  CHECK(node.link.is_fenced_off(older));
  CHECK(node.actions.empty());
  CHECK(node.link.is_of_other_job({.epoch = "200", .instance = "job.8"}));
  CHECK_FALSE(node.link.is_of_other_job({.epoch = "200", .instance = "job.7"}));
}

TEST_CASE("link: a silent coordinator is asked, then its link is given up, then it is gone", "[launcher][unit]") {
  BareCores node;
  node.hear();
  const auto after = [&](seconds time) {
    node.pass(time);
    node.actions.clear();
    return node.link.watch(false);
  };
  CHECK_FALSE(after(seconds(1)));
  CHECK(node.newest<SendHeartbeat>());
  CHECK_FALSE(after(seconds(4)));
  CHECK(node.newest<Reconnect>());
  const auto gone = after(seconds(10));
  REQUIRE((gone && gone->why == ddp::rendezvous::Why::CoordinatorLost));
  CHECK(gone->words == "the coordinator at 10.0.0.1:29500 is gone: no word from it for 15 s");
  CHECK_FALSE(node.link.watch(true));  // the agent leaves already
}

TEST_CASE("agent: sends a heartbeat each second, and says nothing while it is answered", "[launcher][unit]") {
  LinkedAgent agent;
  for (int i = 0; i < 60; ++i) {
    agent.tick_after(seconds(1));
    REQUIRE(agent.find<SendHeartbeat>());
    REQUIRE(agent.actions.size() == 1);
    agent.step(BeatArrived{});
    REQUIRE(agent.core.wake_at() == agent.now + seconds(1));
  }
}

TEST_CASE("agent: a link that broke may come back for two seconds, then the workers are killed", "[launcher][unit]") {
  LinkedAgent agent;
  agent.step(LinkDown{"connection reset"});
  agent.tick_after(milliseconds(1999));
  CHECK_FALSE(agent.find<KillDescendants>());
  agent.step(LinkUp{});
  CHECK(agent.find<SendReport>());  // all of its state, on each new link
  agent.step(DirectiveArrived{LinkedAgent::directive(Directive::Kind::Run, 1)});
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
  LinkedAgent agent;
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
  LinkedAgent agent;
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
  AgentOfTwo agent("10.0.0.1:29500");
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

TEST_CASE("agent: a coordinator of another epoch is not the one it serves", "[launcher][unit]") {
  LinkedAgent agent;
  Directive stranger = LinkedAgent::directive(Directive::Kind::Wait, 0);
  stranger.epoch = "f";
  agent.step(DirectiveArrived{stranger});
  CHECK(agent.find<SignalWorkers>());
  agent.die();
  CHECK(agent.find<Leave>()->exit_code == 75);
}
