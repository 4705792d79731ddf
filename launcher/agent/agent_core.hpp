// SPDX-License-Identifier: BSD-3-Clause
// Decides for one node: what is obeyed of what its coordinator, its user and its parents ask, and when the agent
// leaves. It maps (now, event) to actions and holds no process, socket, clock or log. Its driver is agent.hpp.
//
//     link events ──▶ LinkCore     is the coordinator there, which one counts, until when may the workers live?
//     worker events ─▶ WorkersCore  what happens to the workers, and what is reported of them
//
// They meet in one question, whether workers may live now: no round begins once their lease is over (WorkersCore::run),
// and those that run are killed then (watch_lease).
//
// An agent that does not run (it is stopped, hangs, or its machine sleeps) cannot kill them. Its keeper does so in its
// place at the time that the newest SetDeadman named, a moment after the end of the lease.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_events.hpp"
#include "launcher/agent/link_core.hpp"
#include "launcher/agent/workers_core.hpp"

namespace ddp::launcher {

// Time for the coordinator to answer a stop signal; after it this node acts alone.
inline constexpr std::chrono::seconds kDecisionWithin{2};
// From the end of the lease, when this agent kills the workers, until its keeper does because the agent does not run.
inline constexpr std::chrono::milliseconds kKeeperWaits{250};
// A stop signal this soon after the first one is the same request, unless it is SIGINT: at a time limit Slurm sends
// SIGTERM twice within milliseconds, and a shell repeats the SIGHUP of its terminal.
inline constexpr std::chrono::seconds kSameRequest{2};

class AgentCore {
 public:
  using Phase = WorkersCore::Phase;

  explicit AgentCore(AgentConfig config) : agent_(std::move(config)) {}
  AgentCore(const AgentCore&) = delete;  // its cores share agent_
  AgentCore& operator=(const AgentCore&) = delete;

  void step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions);
  // Returns when to send a Tick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;
  Phase phase() const { return workers_.phase(); }
  const rendezvous::AgentState& state() const { return agent_.state; }
  // Returns what heartbeats over this link take; nothing for the coordinator's own agent, and before the first one.
  std::optional<LinkDelay> link_delay() const { return link_.delay(); }
  // Returns after which silence the coordinator counts a node as lost, as it says; 0: never.
  std::chrono::milliseconds lost_after() const { return link_.lost_after(); }

 private:
  void on(const LinkUp& event);
  void on(const LinkDown& event);
  void on(const LinkRefused& event) { workers_.end({.why = rendezvous::Why::Failed}, event.why); }
  void on(const DirectiveArrived& event);
  void on(const StopSignal& event);
  void on(const GuardianGone& event);
  void on(const HeadGone& event);
  void on(const Tick& event);
  template <typename Event>
  void on(const Event& event) {  // concerns one of the two
    if constexpr (requires { link_.on(event); })
      link_.on(event);
    else
      workers_.on(event);
  }

  std::string why_not_believed(const rendezvous::Directive& directive) const;
  void on_exit(const rendezvous::Directive& exit);
  void decide_alone();
  std::optional<TimePoint> kill_at() const;
  void watch_lease();
  void notice_deadman();
  void set_deadman();

  AgentContext agent_;
  LinkCore link_{agent_};
  WorkersCore workers_{agent_, link_};
  TimePoint asked_to_stop_;                  // when the first stop signal came
  std::optional<TimePoint> decision_until_;  // when this node acts alone on a stop signal
  std::optional<TimePoint> deadman_;         // as set
  std::optional<TimePoint> due_;             // when the next Tick was due, as of the last step
  TimePoint last_step_;
};

}  // namespace ddp::launcher
