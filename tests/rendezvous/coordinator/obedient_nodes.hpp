// SPDX-License-Identifier: BSD-3-Clause
// A coordinator's core and nodes that obey it, for tests of how nodes come, go and fail.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/core/coordinator_core.hpp"

namespace ddp::rendezvous {

inline JobShape elastic(int min, int max, int max_restarts = 0) {
  return {.id = "j", .min_nodes = min, .max_nodes = max, .max_restarts = max_restarts};
}
inline JobShape fixed(int nodes, int max_restarts = 0) { return elastic(nodes, nodes, max_restarts); }
inline JobShape with_ranks(int nodes, int max_restarts = 0) {
  JobShape job = fixed(nodes, max_restarts);
  job.node_ranks_given = true;
  return job;
}

// A job whose coordinator is on node "a". Nodes are named after their hosts and carry out directives at once.
struct Job {
  explicit Job(const JobShape& shape, std::chrono::seconds join_timeout = std::chrono::seconds(60))
      : core({.job = shape,
              .epoch = "e",
              .own_incarnation = "a",
              .join_timeout = join_timeout,
              .last_call = std::chrono::seconds(10),
              .lost_after = std::chrono::seconds(15)}),
        job(shape) {}

  struct Node {
    AgentId link = 0;
    AgentState state;
    Directive told;
  };

  void step(const CoordinatorEvent& event) {
    std::vector<CoordinatorAction> actions;
    core.step(now, event, actions);
    for (const CoordinatorAction& action : actions) {
      if (const auto* send = std::get_if<SendDirective>(&action)) {
        for (auto& [host, node] : nodes) {
          if (node.link == send->agent) node.told = send->directive;
        }
      } else if (const auto* store = std::get_if<OpenStore>(&action)) {
        opened = *store;
      } else if (const auto* published = std::get_if<PublishFailure>(&action)) {
        dead = published->ranks;
      } else if (const auto* says = std::get_if<CoordinatorLogLine>(&action)) {
        said += says->text + "\n";
      }
    }
  }
  void report(const std::string& host) { step(AgentReported{nodes[host].link, nodes[host].state, "10.0.0." + host}); }
  void join(const std::string& host, int node_rank = 0, int slots = 1, const std::string& role = "default") {
    Node& node = nodes[host];
    node = {};
    node.state.role = role;
    node.link = ++links;
    node.state.job = job;
    node.state.incarnation = node.state.host = host;
    node.state.addresses = {"fd00::" + host};
    node.state.node_rank = node_rank;
    node.state.slots = slots;
    report(host);
  }
  // The store opens, and all nodes run.
  void start() {
    step(StoreOpened{core.round(), "", 1000});
    for (auto& [host, node] : nodes) {
      if (node.told.kind != Directive::Kind::Run || node.told.round != core.round()) continue;
      node.state.round = node.told.round;
      node.state.phase = WorkersPhase::Running;
      node.state.epoch = "e";
      node.state.failures.clear();
      node.state.succeeded = false;
      report(host);
    }
  }
  void end(const std::string& host, bool succeeded) {
    nodes[host].state.phase = WorkersPhase::Idle;
    nodes[host].state.succeeded = succeeded;
    report(host);
  }
  // Each node that was told to stop has stopped.
  void stopped() {
    for (auto& [host, node] : nodes) {
      if (node.told.kind != Directive::Kind::Stop || node.state.phase == WorkersPhase::Idle) continue;
      node.state.round = node.told.round;
      end(host, false);
    }
  }
  void cut(const std::string& host) { step(AgentGone{nodes[host].link, "reset"}); }
  void reconnect(const std::string& host) {
    nodes[host].link = ++links;
    report(host);
  }
  void fail(const std::string& host, int rank) {
    WorkerFailure failure;
    failure.rank = rank;
    failure.host = host;
    failure.status.code = 7;
    failure.already_exiting = true;
    nodes[host].state.failures = {failure};
    report(host);
  }
  // Time passes; all nodes but `silent` send their heartbeats.
  void pass(std::chrono::milliseconds time, const std::string& silent = "") {
    const TimePoint until = now + time;
    while (now < until) {
      now += std::chrono::milliseconds(500);
      for (const auto& [host, node] : nodes) {
        if (host != silent) step(AgentBeat{node.link});
      }
      step(CoordinatorTick{});
    }
  }
  void gone(const std::string& host) {
    cut(host);
    nodes.erase(host);
    pass(kReconnectWindow);
  }

  const Directive& told(const std::string& host) { return nodes[host].told; }
  bool runs(const std::string& host, int node_rank) {
    return told(host).kind == Directive::Kind::Run && told(host).round == core.round() &&
           told(host).assignment.node_rank == node_rank;
  }
  bool leaves(const std::string& host, int exit_code) {
    return told(host).kind == Directive::Kind::Exit && told(host).exit_code == exit_code;
  }

  CoordinatorCore core;
  JobShape job;
  TimePoint now{};
  std::map<std::string, Node> nodes;
  AgentId links = 0;
  OpenStore opened{};
  std::vector<int> dead;  // the ranks published in the store
  std::string said;
};

}  // namespace ddp::rendezvous
