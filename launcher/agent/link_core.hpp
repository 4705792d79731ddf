// SPDX-License-Identifier: BSD-3-Clause
// Decides about an agent's link to the coordinator: whether the coordinator is there, which one counts, when a link is
// given up, and until when the workers of this node may live without an answer.
//
//     Searching ──first directive──▶ Joined: answered ──breaks──▶ cut ──up, and answered──▶ answered
//         │                                  └─────── silent ──lost_after / 3──▶ Reconnect ──up──▶ ...
//         └──join_timeout──▶ gives up                       └───────lost_after──▶ gives up
//
// The lease: the coordinator counts a node as lost after lost_after of silence (its Directives carry the value), or
// when a link that broke does not come back in time (back_within); then the job goes on without the node. No worker
// of this node may be left by then, so they are killed after two thirds of either time. It is counted from when this
// node sent the newest message that the coordinator has answered, since the coordinator heard from it then or later.
// After all of lost_after this agent leaves. A node that was told to leave has no lease: no later round knows it, its
// workers have their grace, and the coordinator may end before them.
//
// Where each coordinator of the job has an epoch of its own, a newer coordinator may take over while the older one is
// stopped or cut off, and the older one does not know yet. The epoch is the fence: an agent obeys the newest epoch that
// it has met, and drops a link over which an older coordinator speaks. What an older coordinator says counts for
// nothing, not even as a sign of life.
//
// Invariants: at most one message is unanswered at a time, so each answer belongs to that message; the lease is
// extended by answers only; a directive is heard only if it is neither fenced off nor of another job.
//
// The coordinator's own agent has no link that may be silent. It has its lease from its own loop: the others lose the
// coordinator with it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/agent/agent_events.hpp"
#include "launcher/local/link_delay.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

class LinkCore {
 public:
  explicit LinkCore(AgentContext& agent) : agent_(agent) {}

  // Begins each step. This process was stopped for `slept`, when the coordinator's messages lay unread. The coordinator
  // may have gone on without this node meanwhile, so the lease runs out all the same.
  void begin_step(std::chrono::nanoseconds slept);

  void on(const LinkUp& event);
  void on(const LinkDown& event);
  void on(const LinkFailed& event);
  void on(const CoordinatorNamed&) { named_ = now_; }
  void on(const BeatArrived& event);

  // Returns whether a directive is of an older coordinator than this agent has obeyed. Gives the link up if it is.
  bool is_fenced_off(const rendezvous::Directive& directive);
  // Returns whether a directive is of another job's coordinator. A newer coordinator of the same job takes over.
  bool is_of_other_job(const rendezvous::Directive& directive) const;
  // Takes in a directive that passed both: the coordinator is there, and has these settings.
  void hear(const rendezvous::Directive& directive);
  // The coordinator has told this node to leave. Returns whether it had done so before.
  bool release() { return std::exchange(is_released_, true); }

  // Why the coordinator counts as gone or cannot be found, so that the agent has to leave.
  struct Gone {
    rendezvous::Why why;
    std::string words;
  };
  // Gives a silent link up, or sends a heartbeat. Returns nothing while the coordinator is there, or awaited.
  std::optional<Gone> watch(bool is_leaving);
  // Returns when watch() is to be called; none for the coordinator's own agent.
  std::optional<TimePoint> wake_at(bool is_leaving) const;

  bool is_up() const { return is_up_; }
  // Returns when the lease of the workers ends; nothing: it does not.
  std::optional<TimePoint> lease_until() const;
  bool is_lease_over() const { return now_ >= lease_until().value_or(TimePoint::max()); }
  // Returns why the lease has ended.
  std::string why_lost() const;

  // Returns whether the coordinator ends with this agent. Then the coordinator has to inform the other nodes first.
  bool takes_coordinator_along() const { return is_coordinators() || config_.is_beside_coordinator || is_beside_now_; }
  bool is_coordinators() const { return config_.coordinator.empty(); }
  // What AgentCore shows of the link.
  std::optional<LinkDelay> delay() const { return round_trips_.delay(); }
  std::chrono::milliseconds lost_after() const { return lost_after_; }
  std::chrono::milliseconds between_beats() const;

 private:
  bool joined() const { return !state_.epoch.empty(); }
  TimePoint joins_until() const;
  TimePoint reconnect_at() const;
  void answered();

  AgentContext& agent_;
  const AgentConfig& config_ = agent_.config;
  rendezvous::AgentState& state_ = agent_.state;
  const TimePoint& now_ = agent_.now;

  bool is_up_ = false;
  std::string why_not_up_ = "no answer yet";
  std::optional<TimePoint> started_;  // when the first step was taken
  std::optional<TimePoint> named_;    // when etcd named the node that coordinates
  TimePoint heard_;                   // when the coordinator's newest message arrived
  std::optional<TimePoint> asked_;    // when the unanswered message (a new link's report, or a heartbeat) was sent
  TimePoint answered_;                // when the newest message that was answered was sent
  std::optional<TimePoint> cut_;      // since when a link that worked is broken, or its successor unanswered
  bool is_new_ = false;               // nothing has arrived over this link yet
  bool is_beside_now_ = false;        // as the newest link said
  bool is_released_ = false;          // the coordinator has told this node to leave
  std::string etcds_trouble_;
  bool is_older_ = false;   // an older coordinator is at the link's other end
  std::string older_;       // describes the older coordinator that was met since the newest one was heard
  RoundTrips round_trips_;  // what heartbeats over this link took
  std::chrono::milliseconds lost_after_{0}, back_within_{rendezvous::kReconnectWindow};
  std::optional<TimePoint> next_beat_, next_waiting_line_;
  std::optional<TimePoint> reconnected_;  // when a silent link was last given up
};

}  // namespace ddp::launcher
