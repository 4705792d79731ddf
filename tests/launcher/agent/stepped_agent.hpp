// SPDX-License-Identifier: BSD-3-Clause
// An agent's cores in a test, and their clock.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/agent/agent_core.hpp"

namespace ddp::launcher {

struct SteppedAgent {
  explicit SteppedAgent(AgentConfig config) : core(std::move(config)) {}
  virtual ~SteppedAgent() = default;

  AgentCore core;
  rendezvous::TimePoint now = rendezvous::TimePoint() + std::chrono::seconds(1000);
  std::vector<AgentAction> actions;  // what the newest step, or wait(), returned

  virtual void step(const AgentEvent& event) {
    actions.clear();
    core.step(now, event, actions);
  }
  // Lets time pass with every Tick that the core asks for, and with answers to its heartbeats if `answered`.
  void wait(std::chrono::milliseconds time, bool answered) {
    std::vector<AgentAction> all;
    const rendezvous::TimePoint until = now + time;
    while (core.wake_at() && *core.wake_at() <= until) {
      now = std::max(now, *core.wake_at());
      step(Tick{});
      all.insert(all.end(), actions.begin(), actions.end());
      if (answered && does<SendHeartbeat>()) step(BeatArrived{});
    }
    now = until;
    actions = std::move(all);
  }
  // Returns the first action of this kind; null: there is none.
  template <typename Action>
  const Action* find() const {
    for (const AgentAction& action : actions) {
      if (const auto* found = std::get_if<Action>(&action)) return found;
    }
    return nullptr;
  }
  template <typename Action>
  bool does() const {
    return std::any_of(actions.begin(), actions.end(), [](const auto& a) { return std::holds_alternative<Action>(a); });
  }
};

// The two cores below AgentCore, alone, in a job of several nodes. They have met no coordinator yet.
struct BareCores {
  explicit BareCores(AgentConfig config = {.job = {.id = "j", .max_nodes = 2, .max_restarts = 3},
                                           .incarnation = "i",
                                           .host = "a",
                                           .workers = 2,
                                           .coordinator = "10.0.0.1:29500"})
      : agent(std::move(config)) {
    agent.actions = &actions;
    pass(std::chrono::seconds(1000));
    link.on(LinkUp{});
  }
  void pass(std::chrono::milliseconds time) {
    agent.now += time;
    link.begin_step({});
  }
  void hear(std::string epoch = "e", std::string instance = "") {
    rendezvous::Directive directive{.kind = rendezvous::Directive::Kind::Wait};
    directive.epoch = std::move(epoch);
    directive.instance = std::move(instance);
    directive.lost_after = std::chrono::seconds(15);
    link.hear(directive);
  }
  // Returns the newest action if it is of this kind; else null.
  template <typename Action>
  const Action* newest() const {
    return actions.empty() ? nullptr : std::get_if<Action>(&actions.back());
  }

  AgentContext agent;
  std::vector<AgentAction> actions;
  LinkCore link{agent};
  WorkersCore workers{agent, link};
};

// The place in a round of a node with two workers.
inline rendezvous::Assignment place(int base_rank = 0) {
  return {
      .node_count = 1, .base_rank = base_rank, .world_size = base_rank + 2, .role_world_size = 2, .max_restarts = 3};
}

// An agent with two workers, and 5 s of grace by default, and the actions of its last step.
struct AgentOfTwo : SteppedAgent {
  explicit AgentOfTwo(std::string coordinator = "", std::chrono::seconds shutdown_timeout = std::chrono::seconds(5))
      : SteppedAgent({.job = {.id = "j", .max_restarts = 3},
                      .incarnation = "i",
                      .host = "a",
                      .workers = 2,
                      .coordinator = std::move(coordinator),
                      .join_timeout = std::chrono::seconds(60),
                      .shutdown_timeout = shutdown_timeout}) {
    step(LinkUp{});
  }

  void run(int round, int base_rank = 0) {
    rendezvous::Directive directive{.kind = rendezvous::Directive::Kind::Run, .round = round};
    directive.assignment = place(base_rank);
    step(DirectiveArrived{directive});
    REQUIRE(find<StartWorkers>());
    step(WorkersStarted{{100, 101}});
  }
  void stop(int round, int signal = SIGTERM) {
    step(DirectiveArrived{{.kind = rendezvous::Directive::Kind::Stop, .round = round, .stop_signal = signal}});
  }
  void die(int local_rank, rendezvous::ExitStatus status, std::vector<int> exiting = {}) {
    step(WorkerDying{local_rank, status, rendezvous::WallTime(std::chrono::milliseconds(2)), std::move(exiting)});
  }
  void exit(int local_rank, rendezvous::ExitStatus status, std::vector<int> exiting = {}) {
    step(WorkerExited{local_rank, status, rendezvous::WallTime(std::chrono::milliseconds(1)), "", std::move(exiting)});
  }
};

// An agent of a job of several nodes that runs round 1; the coordinator counts it as lost after 15 s without a word.
struct LinkedAgent : AgentOfTwo {
  LinkedAgent() : AgentOfTwo("10.0.0.1:29500") {
    step(DirectiveArrived{directive(rendezvous::Directive::Kind::Wait, 0)});
    step(DirectiveArrived{directive(rendezvous::Directive::Kind::Run, 1)});
    step(WorkersStarted{{100, 101}});
  }
  static rendezvous::Directive directive(rendezvous::Directive::Kind kind, int round) {
    rendezvous::Directive made;
    made.kind = kind;
    made.assignment = place();
    made.epoch = "e";
    made.lost_after = std::chrono::seconds(15);
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

}  // namespace ddp::launcher
