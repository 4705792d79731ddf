// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/agent_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::Why;

namespace {

constexpr std::chrono::seconds kOverslept{2};  // a Tick this late means that this process was stopped

}  // namespace

std::string in_seconds(std::chrono::nanoseconds time) {
  return rendezvous::to_string(std::chrono::duration_cast<std::chrono::seconds>(time));
}

AgentContext::AgentContext(AgentConfig settings)
    : config(std::move(settings)),
      state{.job = config.job,
            .incarnation = config.incarnation,
            .host = config.host,
            .addresses = config.addresses,
            .endpoint_host = config.endpoint_host,
            .node_rank = config.node_rank,
            .wanted_rank = config.wanted_rank,
            .role = config.role,
            .slots = config.workers,
            .can_look = true} {}

void AgentCore::step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions) {
  if (phase() == Phase::Left) return;  // the job is over, whatever still arrives
  agent_.now = now;
  agent_.actions = &actions;
  const auto late = due_ ? now - *due_ : std::chrono::nanoseconds(0);
  const auto slept = late < kOverslept ? std::chrono::nanoseconds(0) : late;
  link_.begin_step(slept);
  workers_.forgive_sleep(slept);
  notice_deadman();
  std::visit([this](const auto& e) { on(e); }, event);
  set_deadman();
  last_step_ = now;
  due_ = wake_at();
  if (due_) due_ = std::max(*due_, now);  // a sleep is forgiven once
  agent_.actions = nullptr;
}

std::optional<TimePoint> AgentCore::wake_at() const {
  if (phase() == Phase::Left) return std::nullopt;
  auto soonest =
      earlier(earlier(workers_.wake_at(), decision_until_), earlier(kill_at(), link_.wake_at(workers_.is_leaving())));
  // Its own loop is its lease.
  if (link_.is_coordinators() && deadman_) soonest = earlier(soonest, last_step_ + link_.between_beats());
  return soonest;
}

void AgentCore::on(const Tick&) {
  workers_.watch();
  if (decision_until_ && agent_.now >= *decision_until_) decide_alone();
  watch_lease();
  if (phase() == Phase::Left) return;
  if (const auto gone = link_.watch(workers_.is_leaving())) workers_.end({.why = gone->why}, gone->words);
}

// ---- May the workers live? ----

// Returns when the workers are to be killed, if there are any.
std::optional<TimePoint> AgentCore::kill_at() const { return workers_.may_kill() ? link_.lease_until() : std::nullopt; }

void AgentCore::watch_lease() {
  const auto until = kill_at();
  if (!until || agent_.now < *until) return;
  workers_.kill_because("it had lost the coordinator (" + link_.why_lost() + ")");
}

// Notes that the keeper has killed the workers, before any of their deaths is handled.
void AgentCore::notice_deadman() {
  if (deadman_ && agent_.now >= *deadman_) workers_.note_keeper(agent_.now - last_step_);
}

void AgentCore::set_deadman() {
  const auto until = kill_at();
  const auto at = until ? std::optional(*until + kKeeperWaits) : std::nullopt;
  if (at != std::exchange(deadman_, at)) agent_.act(SetDeadman{at});
}

// ---- The coordinator ----

void AgentCore::on(const LinkUp& event) {
  link_.on(event);
  workers_.report();
}

void AgentCore::on(const LinkDown& event) {
  link_.on(event);
  if (link_.is_coordinators()) workers_.end({.why = Why::Failed}, "the link to the coordinator broke: " + event.why);
}

// Returns what in a directive cannot be meant for this node, as far as accept() could not know; empty: nothing.
std::string AgentCore::why_not_believed(const Directive& directive) const {
  if (directive.kind != Directive::Kind::Run) return "";
  const rendezvous::Assignment& place = directive.assignment;
  const AgentConfig& own = agent_.config;
  const rendezvous::JobShape& job = own.job;
  const auto counted = [](int number, const char* what) { return std::to_string(number) + " " + what; };
  if (place.node_count < job.min_nodes || place.node_count > job.max_nodes) return counted(place.node_count, "nodes");
  if (job.node_ranks_given && place.node_rank != own.node_rank) {
    return "node rank " + std::to_string(place.node_rank);
  }
  const bool is_over = job.restart_window.count() == 0 && place.restart_count > place.max_restarts;
  if (place.max_restarts != job.max_restarts || is_over) {
    return counted(place.restart_count, "restarts of ") + std::to_string(place.max_restarts);
  }
  const bool has_ranks =
      place.base_rank <= place.world_size - own.workers && place.base_role_rank <= place.role_world_size - own.workers;
  if (has_ranks) return "";
  return counted(own.workers, "workers") + " from rank " + std::to_string(place.base_rank) + " of " +
         std::to_string(place.world_size);
}

void AgentCore::on(const DirectiveArrived& event) {
  const Directive& directive = event.directive;
  if (link_.is_fenced_off(directive)) return;
  if (const std::string what = why_not_believed(directive); !what.empty()) {
    return workers_.end({.why = Why::Failed}, "the coordinator" +
                                                  (link_.is_coordinators() ? "" : " at " + agent_.config.coordinator) +
                                                  " gives this node what cannot be its own: " + what);
  }
  if (link_.is_of_other_job(directive)) {
    // A coordinator of the next job with this id says in its refusal what it knows of this one.
    const bool is_refusal = !directive.instance.empty() && directive.kind == Directive::Kind::Exit;
    if (is_refusal) return on_exit(directive);
    return workers_.end({.why = Why::JobIsGone}, "another coordinator answers at " + agent_.config.coordinator +
                                                     "; the one this node served is gone");
  }
  link_.hear(directive);
  if (directive.round < workers_.newest_round()) return;  // about an older round
  switch (directive.kind) {
    case Directive::Kind::Wait:
      if (!directive.reason.empty()) agent_.act(LogLine{.text = directive.reason, .is_of_job = true});
      break;
    case Directive::Kind::Run:
      if (directive.round > state().round) workers_.run(directive);  // else a repetition
      break;
    case Directive::Kind::Stop:
      decision_until_.reset();
      return workers_.on_stop(event);
    case Directive::Kind::Exit:
      return on_exit(directive);
  }
}

// The first end stands: another coordinator may come while the workers end, and find that the record is gone.
void AgentCore::on_exit(const Directive& exit) {
  decision_until_.reset();
  if (!link_.release()) workers_.on_exit(exit);
}

// ---- The user and the parents ----

void AgentCore::on(const StopSignal& event) {
  int& reported = agent_.state.stop_signal;
  if (reported == 0) {
    agent_.users_signal = reported = event.signal;
    asked_to_stop_ = agent_.now;
    // A coordinator that ends with this agent has to inform the other nodes, so there is no deadline for it.
    if (!link_.takes_coordinator_along()) {
      if (!link_.is_up()) return decide_alone();
      decision_until_ = agent_.now + kDecisionWithin;
    }
    return workers_.report();
  }
  if (event.signal != SIGINT && agent_.now - asked_to_stop_ < kSameRequest) return;
  if (workers_.may_kill()) {
    agent_.act(LogLine{"second signal: killing the workers"});
    workers_.kill();
  }
  reported = SIGKILL;
  workers_.report();
  if (!link_.takes_coordinator_along()) decide_alone();
}

void AgentCore::decide_alone() {
  decision_until_.reset();
  const int signal = agent_.users_signal;
  if (workers_.may_stop()) workers_.stop(signal);
  workers_.end({.why = Why::StopSignal, .signal = signal}, rendezvous::signal_name(signal) + " received");
}

void AgentCore::on(const GuardianGone&) {
  const std::string reason = "ddprun was killed";
  if (workers_.may_kill()) workers_.kill_because(reason);
  agent_.state.stopped_because = reason;
  workers_.end({.why = Why::Failed, .signal = SIGKILL}, reason);
}

// To the others this node is lost, and does not end their job: the head may start a replacement agent, which waits
// until this agent has left. This agent leaves once its workers have ended.
void AgentCore::on(const HeadGone&) {
  const std::string reason = "its connection to the head has ended";
  if (phase() != Phase::Idle && !workers_.is_leaving()) {
    agent_.state.stopped_because = reason;
    workers_.report();
  }
  workers_.end({.why = Why::NodeLost}, reason);
}

}  // namespace ddp::launcher
