// SPDX-License-Identifier: BSD-3-Clause
// The fence: where each coordinator has an epoch of its own, an agent never obeys an older one after a newer one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// An agent that runs round 1 of a job whose coordinator has epoch 99.
struct FencedAgent final : SteppedAgent {
  FencedAgent()
      : SteppedAgent({.job = {.id = "j", .max_nodes = 2},
                      .incarnation = "i",
                      .host = "a",
                      .workers = 2,
                      .coordinator = "etcd"}) {
    step(LinkUp{});
    tell(Directive::Kind::Run, 1, "99");
    step(WorkersStarted{{100, 101}});
  }
  void tell(Directive::Kind kind, int round, const std::string& epoch, const std::string& instance = "job.99",
            int exit_code = 0) {
    Directive directive;
    directive.kind = kind;
    directive.epoch = epoch;
    directive.instance = instance;
    directive.lost_after = directive.back_within = seconds(15);
    directive.round = round;
    directive.reason = "because";
    directive.exit_code = exit_code;
    if (kind == Directive::Kind::Stop) directive.stop_signal = SIGTERM;
    directive.assignment = {.node_count = 2, .world_size = 4, .role_world_size = 4};
    step(DirectiveArrived{directive, {}});
  }
  // The workers have ended.
  void lose_workers() {
    if (std::exchange(has_lost_workers, true)) return;
    for (const int local_rank : {0, 1}) {
      WorkerExited exited;
      exited.local_rank = local_rank;
      exited.status.signal = SIGTERM;
      step(exited);
    }
    step(AllGone{{{}, {}}});
  }
  bool has_lost_workers = false;
};

}  // namespace

TEST_CASE("fence: an agent obeys a newer coordinator of its job, and then no older one", "[launcher][unit]") {
  FencedAgent agent;
  agent.tell(Directive::Kind::Wait, 1, "100");  // as a text it would be older than 99
  CHECK(agent.core.state().epoch == "100");
  agent.tell(Directive::Kind::Stop, 1, "99");
  CHECK_FALSE(agent.does<SignalWorkers>());
  CHECK(agent.does<Reconnect>());
  CHECK(agent.core.state().epoch == "100");
  agent.tell(Directive::Kind::Stop, 1, "100");
  CHECK(agent.does<SignalWorkers>());
}

TEST_CASE("fence: what an older coordinator says does not keep the workers alive", "[launcher][unit]") {
  FencedAgent agent;
  agent.tell(Directive::Kind::Wait, 1, "100");
  bool was_killed = false;
  for (int second = 0; second < 11; ++second) {
    agent.wait(seconds(1), false);
    was_killed = was_killed || agent.does<KillDescendants>();
    agent.tell(Directive::Kind::Wait, 1, "99");
  }
  CHECK(was_killed);
}

TEST_CASE("fence: an older coordinator that answers every link is met like a silent one", "[launcher][unit]") {
  FencedAgent agent;  // whose etcd was started again without its data
  std::vector<std::string> links;
  bool was_killed = false;
  std::string end;
  const auto look = [&] {
    if (agent.does<KillDescendants>()) was_killed = true;
    if (const auto* leave = agent.find<Leave>()) end = leave->directive.reason;
    const auto* again = agent.find<Reconnect>();
    if (!again) return;
    links.push_back(again->why);
    agent.step(LinkDown{links.back()});
    agent.step(LinkUp{});
  };
  for (int tenth = 0; tenth < 300; ++tenth) {
    agent.tell(Directive::Kind::Wait, 1, "2", "job.2");
    look();
    agent.step(BeatArrived{});  // which keeps nothing alive
    agent.wait(milliseconds(100), false);
    look();
    if (was_killed) agent.lose_workers();
  }
  CHECK(was_killed);
  CHECK(links.size() < 5);
  for (const std::string& why : links) CHECK(why == "an older coordinator speaks (epoch 2, the newest is 99)");
  CHECK(end ==
        "the coordinator at etcd is gone: no word from it for 15 s (an older coordinator speaks (epoch 2, the "
        "newest is 99); has etcd lost its data?)");
}

TEST_CASE("fence: a newer coordinator is obeyed after older ones have answered", "[launcher][unit]") {
  FencedAgent agent;
  for (int link = 0; link < 2; ++link) {
    agent.tell(Directive::Kind::Wait, 1, "2", "job.2");
    agent.step(LinkDown{"an older one"});
    agent.step(LinkUp{});
  }
  agent.tell(Directive::Kind::Stop, 1, "100");
  CHECK(agent.does<SignalWorkers>());
  agent.tell(Directive::Kind::Wait, 1, "99");  // one more late word
  CHECK(agent.does<Reconnect>());
}

TEST_CASE("fence: an older coordinator ends no agent, whatever job it is of", "[launcher][unit]") {
  FencedAgent agent;
  agent.tell(Directive::Kind::Exit, 1, "50", "another.50", 7);
  CHECK_FALSE(agent.does<SignalWorkers>());
  CHECK(agent.core.phase() == AgentCore::Phase::Running);
}

TEST_CASE("fence: a newer coordinator of another job ends the agent, with its own words if it refuses it",
          "[launcher][unit]") {
  FencedAgent refused;
  refused.tell(Directive::Kind::Exit, 0, "200", "another.200", 3);
  CHECK(refused.does<SignalWorkers>());
  FencedAgent agent;
  agent.tell(Directive::Kind::Wait, 1, "200", "another.200");
  CHECK(agent.does<SignalWorkers>());
}

TEST_CASE("fence: the first end that an agent hears stands", "[launcher][unit]") {
  FencedAgent agent;
  agent.tell(Directive::Kind::Exit, 1, "99", "job.99", 7);
  CHECK(agent.does<SignalWorkers>());
  agent.tell(Directive::Kind::Exit, 0, "200", "another.200", 75);
  agent.lose_workers();
  const auto leave = std::find_if(agent.actions.begin(), agent.actions.end(),
                                  [](const auto& action) { return std::holds_alternative<Leave>(action); });
  REQUIRE(leave != agent.actions.end());
  CHECK(std::get<Leave>(*leave).exit_code == 7);
}

TEST_CASE("agent: where the journal is elsewhere a broken link leaves the workers as much time as silence",
          "[launcher][unit]") {
  FencedAgent agent;
  agent.step(LinkDown{"reset"});
  agent.wait(seconds(9), false);
  CHECK_FALSE(agent.does<KillDescendants>());
  agent.wait(seconds(2), false);
  CHECK(agent.does<KillDescendants>());
}
