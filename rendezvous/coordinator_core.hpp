// SPDX-License-Identifier: BSD-3-Clause
// Decides for the whole job: who is in a round and with which ranks, restart or give up, how the job ends.
// One per job. A value: events in, actions out; no socket, thread, clock or log inside. The driver is coordinator.hpp.
//
//     Joining ──all nodes here──▶ Opening ──StoreOpened──▶ Running ──all succeeded──▶ Over
//                                    ▲                        │ a failure, a stop signal, a lost agent
//                                    └──restart, all idle── Stopping ──no restart, all idle──▶ Over
//
// Invariants: ranks of a round are exactly 0..world_size-1; a round is opened only when every agent of the one before
// is idle (all of its processes reaped) or gone; at most max_restarts restarts; once Over, always Over.
// This version forms jobs of a fixed number of nodes (config.nodes).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/link_messages.hpp"

namespace ddp::rendezvous {

struct CoordinatorConfig {
  std::string job;
  int nodes = 1;
  int max_restarts = 0;
};

using AgentId = int;  // one per link, given by the driver

// ---- events ----
struct AgentReported {
  AgentId agent;
  AgentState state;
};
struct AgentGone {  // its link broke
  AgentId agent;
};
struct StoreOpened {  // the answer to OpenStore
  int round;
  std::string address;
  std::uint16_t port;
};
using CoordinatorEvent = std::variant<AgentReported, AgentGone, StoreOpened>;

// ---- actions ----
struct SendDirective {
  AgentId agent;
  Directive directive;
};
struct OpenStore {  // a fresh, empty store for this round; whatever held on to the old one is cut off
  int round;
};
struct PublishFailure {  // tell the workers that are still running who died
  std::string text;
};
using CoordinatorAction = std::variant<SendDirective, OpenStore, PublishFailure>;

class CoordinatorCore {
 public:
  explicit CoordinatorCore(CoordinatorConfig config) : config_(std::move(config)) {}

  void step(const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions);
  bool over() const { return phase_ == Phase::Over; }

 private:
  enum class Phase { Joining, Opening, Running, Stopping, Over };
  // What follows once every agent is idle.
  struct Ending {
    bool restart = false;
    int exit_code = 0;
    std::string reason;  // empty: the cause in words
  };

  void on(const AgentReported& event);
  void on(const AgentGone& event);
  void on(const StoreOpened& event);
  void advance();
  void open_next_round();
  void stop_round(int signal, Ending ending, std::string reason);
  void stop_for_failure();
  void finish(const Directive& exit);
  void send(AgentId agent, Directive directive);
  void send_all(const Directive& directive);
  std::vector<WorkerFailure> failures() const;
  bool all_agents(bool (*condition)(const AgentState&, int round)) const;

  CoordinatorConfig config_;
  Phase phase_ = Phase::Joining;
  int round_ = 0;
  int restarts_ = 0;
  Ending ending_;
  std::optional<WorkerFailure> cause_;  // of the newest restart or of the end
  std::map<AgentId, AgentState> agents_;
  std::map<AgentId, Directive> directives_;  // the current one of each agent; sent when it changes
  std::vector<CoordinatorAction>* actions_ = nullptr;
};

// The failure that explains the others: one that came by itself before one that ddprun caused; among those that were
// dead or dying when the first was noticed, a signal before an exit code (a crash makes its peers exit, not the other
// way round); then the earliest.
const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures);

}  // namespace ddp::rendezvous
