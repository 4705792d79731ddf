// SPDX-License-Identifier: BSD-3-Clause
// A coordinator's core in an elastic job of one to three nodes. It is on node a, whose link is 1; node b has link 2.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/core/coordinator_core.hpp"

namespace ddp::rendezvous {

struct SmallJob {
  // `others_address` is where the links of the other nodes come from.
  SmallJob(int max_restarts, std::string others_address)
      : shape{.id = "j", .min_nodes = 1, .max_nodes = 3, .max_restarts = max_restarts},
        address(std::move(others_address)) {}

  JobShape shape;
  std::string address;
  CoordinatorCore core{{.job = shape, .epoch = "e", .own_incarnation = "a", .last_call = std::chrono::seconds(0)}};
  std::vector<CoordinatorAction> actions, last;  // all, and the newest step's
  TimePoint now{};

  void step(const CoordinatorEvent& event) {
    last.clear();
    core.step(now, event, last);
    actions.insert(actions.end(), last.begin(), last.end());
  }
  void wait(std::chrono::milliseconds time) {
    for (const TimePoint until = now + time; now < until; now += std::chrono::milliseconds(500)) {
      step(CoordinatorTick{});
    }
  }
  AgentState on(const std::string& host, WorkersPhase phase = WorkersPhase::Idle) const {
    AgentState state;
    state.job = shape;
    state.incarnation = state.host = host;
    state.slots = 1;
    state.round = core.round();
    state.phase = phase;
    return state;
  }
  void report(AgentId link, const AgentState& state) {
    step(AgentReported{link, state, state.host == "a" ? "" : address});
  }
  Directive told(AgentId link) const {
    Directive newest;
    for (const CoordinatorAction& action : actions) {
      const auto* sent = std::get_if<SendDirective>(&action);
      if (sent && sent->agent == link) newest = sent->directive;
    }
    return newest;
  }
  // Returns what the newest record says.
  JobRecord record() const {
    std::string content;
    for (const CoordinatorAction& action : actions) {
      if (const auto* kept = std::get_if<Record>(&action)) content = kept->content;
    }
    const auto read = decode_record(content);
    if (const auto* const why = std::get_if<std::string>(&read)) FAIL(*why);
    return std::get<JobRecord>(read);
  }
  // Nodes a and b run a round.
  void start() {
    report(2, on("b"));
    report(1, on("a"));
    step(StoreOpened{core.round(), "", 1});
    report(1, on("a", WorkersPhase::Running));
    report(2, on("b", WorkersPhase::Running));
  }
};

}  // namespace ddp::rendezvous
