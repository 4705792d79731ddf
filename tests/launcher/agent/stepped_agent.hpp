// SPDX-License-Identifier: BSD-3-Clause
// An agent's core in a test, and its clock.
#pragma once

#include <algorithm>
#include <chrono>
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

}  // namespace ddp::launcher
