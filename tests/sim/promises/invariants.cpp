// SPDX-License-Identifier: BSD-3-Clause
// Checks agents, workers, and the job as a whole. coordinator_invariants.cpp checks the coordinator.
#include "tests/sim/promises/invariants.hpp"

#include <algorithm>

#include "tests/sim/promises/look_up.hpp"

namespace ddp::sim {

using rendezvous::Assignment;
using rendezvous::Directive;
using rendezvous::kReconnectWindow;

// ---- Agents ----

void Invariants::on_report(const Process& process, const rendezvous::AgentState& state) const {
  for (const rendezvous::WorkerFailure& failure : state.failures) {
    if (failure.pid == 0) continue;
    const Worker& worker = scene_.worker(failure.pid - 1000);
    promise(Promise::ReportsAreTrue, worker.why != Why::Ddprun || failure.stopped_by_ddprun, describe(worker));
    promise(Promise::ReportsAreTrue, failure.rank == worker.rank && failure.status == worker.status, describe(worker));
  }
  const auto names_files = [this](const rendezvous::WorkerFailure& failure) {
    if (failure.pid == 0) return;
    const Worker& worker = scene_.worker(failure.pid - 1000);
    const bool are_there = failure.stderr_log.starts_with(folder_of(worker) + "/") &&
                           failure.flight_recorder.starts_with(folder_of(worker) + "/");
    promise(Promise::ReportsAreTrue, are_there, describe(worker) + ", files");
  };
  if (state.phase == rendezvous::WorkersPhase::Quiet) {
    for (const int id : process.workers) {
      const Worker& worker = scene_.worker(id);
      promise(Promise::QuietIsTrue, worker.reaped || worker.quiet || !worker.acts, describe(worker));
    }
    if (process.core.phase() == launcher::AgentCore::Phase::Quiet) {
      for (const rendezvous::WorkerFailure& failure : state.failures) names_files(failure);
    }
  }
  const bool ran = !process.workers.empty() && scene_.worker(process.workers.front()).round == state.round;
  if (state.phase != rendezvous::WorkersPhase::Idle || !ran || !state.unkillable.empty()) return;
  for (const int id : process.workers) {
    promise(Promise::ReportsAreTrue, !state.succeeded || scene_.worker(id).status.success(),
            describe(scene_.worker(id)));
  }
  for (const rendezvous::WorkerFailure& failure : state.failures) names_files(failure);
  promise(Promise::IdleIsTrue, process.cleared, process.config.host + ", descendants");
  for (const int id : process.workers) {
    promise(Promise::IdleIsTrue, scene_.worker(id).reaped, describe(scene_.worker(id)));
  }
}

void Invariants::on_told(const Process& process, const Directive& directive) {
  if (!scene_.counts(process, directive) || directive.round < process.core.state().round) return;
  const bool is_newer = directive.round > process.core.state().round;
  const bool is_stop = directive.kind == Directive::Kind::Stop;
  if (directive.kind == Directive::Kind::Exit || (is_stop && !directive.survivors_stay)) {
    must_stop_.insert(process.index);
  }
  if (is_stop || (directive.kind == Directive::Kind::Run && is_newer)) must_leave_.insert(process.index);
  if (directive.kind != Directive::Kind::Exit) return;
  const bool is_first = heard_an_exit_.insert(process.index).second;  // it obeys this one, also if it was refused
  if (is_first && the_end_ && directive.reason == the_end_->reason) {
    heard_the_end_.emplace(process.index, *the_end_);
  }
}

void Invariants::on_obeyed(const Process& process, const launcher::AgentEvent& event, const std::string& epoch,
                           const std::vector<launcher::AgentAction>& actions) const {
  const auto* arrived = std::get_if<launcher::DirectiveArrived>(&event);
  const bool is_older = arrived && !epoch.empty() && rendezvous::is_older_epoch(arrived->directive.epoch, epoch);
  if (!is_older) return;
  const std::string who = process.config.host + ", epoch " + arrived->directive.epoch + " after " + epoch;
  promise(Promise::NewestEpochOnly, process.core.state().epoch == epoch, who);
  for (const launcher::AgentAction& action : actions) {
    const bool is_obedience = std::holds_alternative<launcher::StartWorkers>(action) ||
                              std::holds_alternative<launcher::Leave>(action) ||
                              std::holds_alternative<launcher::StartMissing>(action) ||
                              std::holds_alternative<launcher::RevokeRound>(action) ||
                              std::holds_alternative<launcher::SignalWorkers>(action);
    promise(Promise::NewestEpochOnly, !is_obedience, who);
  }
}

void Invariants::on_start(const Process& process, const Assignment& assignment) {
  const int round = process.core.state().round;
  const std::string who = process.config.host + ", round " + std::to_string(round);
  must_stop_.erase(process.index);
  must_leave_.erase(process.index);
  promise(Promise::NewestRoundOnly, round == process.newest_round_told,
          who + ", it knows round " + std::to_string(process.newest_round_told));
  const auto members = rounds_.find(round);
  promise(Promise::OnlyMembersRun, members != rounds_.end() && found(members->second, process.index) == assignment,
          who);
  const bool survivors_stay = process.core.phase() == launcher::AgentCore::Phase::Running;
  for (const int id : process.workers) {
    const Worker& worker = scene_.worker(id);
    const bool stays = survivors_stay && (worker.quiet || !worker.acts);
    promise(Promise::ReapedBeforeNext, worker.reaped || stays || scene_.is_stuck(worker),
            who + ": " + describe(worker));
  }
  promise(Promise::GuardedOnly, !process.guardian_gone, who);
  promise(Promise::NothingStartsAfterEnd, !scene_.coordinator->core.over() || has_just_woken(process), who);
}

void Invariants::on_start_missing(const Process& process, const launcher::StartMissing& start) {
  on_start(process, start.assignment);
  for (const int local : start.local_ranks) {
    const Worker& worker = scene_.worker(process.workers[static_cast<std::size_t>(local)]);
    promise(Promise::ReapedBeforeNext, worker.reaped, process.config.host + ": " + describe(worker));
  }
  if (start.local_ranks.size() < process.workers.size()) note_size(process);
}

// Notes that workers stay in a round with fewer or more nodes than they were in.
void Invariants::note_size(const Process& process) const {
  const auto now = rounds_.find(process.core.state().round);
  if (now == rounds_.begin() || now == rounds_.end()) return;
  for (auto before = now; before-- != rounds_.begin();) {
    if (!before->second.contains(process.index)) continue;
    const int had = before->second.at(process.index).node_count, has = now->second.at(process.index).node_count;
    if (has < had) coverage_.reached(Branch::WentOnWithFewer);
    if (has > had) coverage_.reached(Branch::WentOnWithMore);
    return;
  }
}

// The agent may end it because it has to, because it has lost the coordinator, or because it slept and does not know
// yet that the worker is quiet.
void Invariants::on_ended(const Process& process, const Worker& worker) const {
  const bool has_reason = must_stop_.contains(process.index) || process.user_stopped || process.guardian_gone ||
                          was_in_trouble(process) || has_just_woken(process);
  promise(Promise::QuietAreKept, !worker.acts || !worker.quiet || has_reason, describe(worker));
}

void Invariants::on_hang_found(const Process& process) {
  const rendezvous::AgentState& state = process.core.state();
  if (state.hang != rendezvous::Hang::None) newest_hang_ = std::max(newest_hang_, state.round);
}

void Invariants::on_started(const Process& process) {
  check_quiet();
  for (const auto& [lost, when] : lost_at_) {
    const Process& gone = scene_.process(lost);
    const bool slept = gone.asleep || gone.awake_since + scene_.plan.lost_after > when;
    if (!gone.alive || slept || gone.workers.empty() || newest_act(gone) == Time()) continue;
    const Worker& one = scene_.worker(gone.workers.front());
    if (one.round + 1 != process.core.state().round || newest_act(gone) > when) continue;
    const auto margin = std::chrono::duration_cast<milliseconds>(scene_.now - newest_act(gone));
    coverage_.least_margin_round = std::min(coverage_.least_margin_round, margin);
  }
}

// Whether an agent was suspended until a moment ago: it has a reconnect window to find out that its link is broken.
bool Invariants::has_just_woken(const Process& process) const {
  return process.awake_since > Time() && process.awake_since + kReconnectWindow > scene_.now;
}

// Whether a node that is lost could have killed its workers: its agent, or its keeper if the agent is suspended.
// Neither could while the machine was. A keeper does not know that the link is broken, and an agent learns it when it
// goes on.
bool Invariants::could_kill(const Process& process) const {
  const bool knew = !lost_by_cut_.contains(process.index) || !(process.asleep || has_just_woken(process));
  return knew && scene_.machine(process.machine).frozen_until + kKeeperWakesWithin <= scene_.now;
}

// Whether a worker acts although it could have been killed.
bool Invariants::acts_against_orders(const Worker& worker) const {
  return worker.acts && !scene_.is_stuck(worker) && could_kill(scene_.process(worker.process));
}

void Invariants::check_quiet() const {
  const bool is_crowd = scene_.alive.size() > 300;
  if (scene_.alive.empty()) return;
  if (is_crowd && scene_.worker(*scene_.alive.begin()).round == scene_.coordinator->core.round())
    return;  // all workers are of one round
  const Worker* newest = nullptr;
  for (const int id : scene_.alive) {
    const Worker& worker = scene_.worker(id);
    if (worker.acts && !worker.quiet && (!newest || worker.round > newest->round)) newest = &worker;
  }
  std::map<std::pair<int, int>, const Worker*> slots;
  for (const int id : scene_.alive) {
    const Worker& worker = scene_.worker(id);
    if (!acts_against_orders(worker) || worker.quiet) continue;
    promise(Promise::QuietBeforeNext, worker.round == newest->round,
            describe(worker) + " runs beside " + describe(*newest));
    const auto [other, is_first] = slots.emplace(std::pair(worker.node_rank, worker.local), &worker);
    promise(Promise::OneIncarnation, is_first, describe(worker) + " runs beside " + describe(*other->second));
  }
}

void Invariants::on_stepped(const Process& process) {
  const bool must_stop = must_stop_.count(process.index) != 0;
  if (must_stop || must_leave_.count(process.index) != 0) {
    for (const int id : process.workers) {
      const Worker& worker = scene_.worker(id);
      const bool leaves = !must_stop && (worker.revoked || worker.quiet);
      promise(Promise::StopIsObeyed, !worker.acts || worker.told || leaves, describe(worker));
    }
  }
  if (process.stop_told && process.alive) {
    const Time since = std::max(*process.stop_told, process.awake_since);
    // A survivor that is late is killed alone first.
    const Duration stages = (scene_.plan.job.survivors_stay ? 3 : 2) * launcher::kUnkillableAfter + seconds(3);
    promise(Promise::StopEndsInTime, scene_.now <= since + process.config.shutdown_timeout + stages,
            process.config.host);
  }
}

void Invariants::on_lease_kill(const Process& process) {
  promise(Promise::LeaseOnlyInTrouble, was_in_trouble(process), process.config.host);
}

void Invariants::on_leave(const Process& process, const launcher::Leave& leave) {
  const std::string who =
      process.config.host + " leaves with " + std::to_string(leave.exit_code) + ": " + leave.directive.reason;
  promise(Promise::ReasonsAreGiven, !leave.directive.reason.empty(), who);
  for (const int id : process.workers) {
    const Worker& worker = scene_.worker(id);
    promise(Promise::NothingLeftRunning, worker.reaped || !leave.unkillable.empty(), who + ": " + describe(worker));
  }
  if (leave.exit_code == 0) check_success(who);
  for (const int id : process.workers) {
    const Worker& worker = scene_.worker(id);
    const bool is_about_it = leave.exit_code == 0 && leave.directive.round == worker.round;
    promise(Promise::OwnSuccessIsTrue, !is_about_it || worker.status.success(), who + ": " + describe(worker));
  }
  promise(Promise::SuccessIsClean, leave.exit_code != 0 || process.core.state().unkillable.empty(), who);
  if (process.user_stopped) {
    const bool is_lied_to = scene_.plan.lies == Lies::Coordinator;  // about lost_after as well
    const milliseconds lost_after = is_lied_to ? kLongestLie : scene_.plan.lost_after;
    // Workers that were to stay, and now are to end, have their grace once more.
    const int graces = scene_.plan.job.survivors_stay ? 2 : 1;
    const milliseconds limit = 3 * lost_after + graces * process.config.shutdown_timeout + seconds(30);
    promise(Promise::UserIsHeard, scene_.now <= std::max(*process.user_stopped, process.awake_since) + limit, who);
  }
  const Reason why = leave.directive.why;
  if (why == Reason::NoCoordinator) coverage_.reached(Branch::AgentNeverJoined);
  if (why == Reason::CoordinatorLost) coverage_.reached(Branch::CoordinatorGone);
  if (why == Reason::StopSignal && leave.directive.epoch.empty()) coverage_.reached(Branch::DecidedAlone);
  const bool was_let_go = why == Reason::Released;  // before the end
  if (const auto end = found(heard_the_end_, process.index); end && !was_let_go) {
    const bool same = leave.exit_code == end->exit_code || (leave.exit_code == 1 && !leave.unkillable.empty());
    promise(Promise::OneEnd, same && leave.directive.reason == end->reason, who + "; the end was " + end->reason);
  }
  if (!scene_.coordinator || process.index != scene_.coordinator->process || !scene_.coordinator->over_since) return;
  if (scene_.now >= *scene_.coordinator->over_since + scene_.plan.lost_after) {
    return coverage_.reached(Branch::ShutdownDeadline);
  }
  if (scene_.coordinator->doubted_until > *scene_.coordinator->over_since) return;  // it could tell nobody meanwhile
  if (heard_the_end_.count(process.index) == 0) return;                             // it left for reasons of its own
  for (const int index : known_) {
    const Process& other = scene_.process(index);
    if (index == process.index || other.is_replaced) continue;  // nothing is left of one that another has replaced
    // With etcd the record says it to a node that comes later.
    const bool is_awaited = restored_.contains(index) && !scene_.plan.has_etcd && !own_was_told_before_ &&
                            scene_.now < broke_[index] + rendezvous::acts_within(scene_.plan.lost_after);
    promise(Promise::OwnAgentLast, !is_awaited, other.config.host + " may come back");
    if (!other.alive || !other.up || found(reported_, index) != other.link) continue;
    if (perhaps_lost_.count(index) != 0 || other.user_stopped) continue;  // it may be lost, or was released
    // It has heard the end meanwhile: what goes to the own agent may wait for etcd.
    const auto told = found(sent_off_, index);
    if (scene_.plan.has_etcd && told && told->kind == Directive::Kind::Exit) continue;
    const milliseconds silence = has_succeeded(index) ? scene_.plan.lost_after / 5 : scene_.plan.lost_after;
    const bool is_lost = broke_.count(index) != 0 || scene_.now >= heard_[index] + silence;
    const auto round = rounds_.find(scene_.coordinator->core.round());
    const bool is_member = round != rounds_.end() && round->second.contains(index) && !lost_at_.contains(index);
    const bool had_its_time = scene_.now >= *scene_.coordinator->over_since + rendezvous::kAnswerToEnd;
    promise(Promise::OwnAgentLast, is_lost || (!is_member && had_its_time), other.config.host + " is still there");
  }
}

// ---- The job as a whole ----

void Invariants::on_tick(int ticks_at_once) {
  promise(Promise::NoBusyLoop, ticks_at_once < 3, std::to_string(ticks_at_once + 1) + " at one instant");
}

void Invariants::at_end() {
  if (!scene_.coordinator) return;
  int rounds = 0;
  for (const Coordinator& coordinator : scene_.coordinators) rounds = std::max(rounds, coordinator.core.round());
  for (const Process& process : scene_.processes) {
    const std::string& host = process.config.host;
    const int directives = process.directives_got, links = process.links_made;
    promise(Promise::FewMessages, directives <= 4 + 2 * links + 4 * rounds,
            host + " got " + std::to_string(directives));
    const int reports = process.reports_sent - static_cast<int>(process.users_signals.size());
    promise(Promise::FewMessages,
            reports <= 6 + links + (6 + process.config.workers) * rounds + 2 * process.replacements,
            host + " sent " + std::to_string(reports));
    // With etcd one that comes when the job is over, and its record gone, is no part of it.
    const bool came_too_late = scene_.plan.has_etcd && process.core.state().epoch.empty();
    if (scene_.plan.faults.empty() && reported_.count(process.index) > 0 && !came_too_late) {
      promise(Promise::FaultlessSucceeds, process.left && process.left->exit_code == 0, host);
    }
  }
  const bool is_fixed = scene_.plan.job.min_nodes == scene_.plan.job.max_nodes;
  if (scene_.plan.faults.empty() && is_fixed) promise(Promise::FaultlessSucceeds, rounds == 1, std::to_string(rounds));
  for (const int id : scene_.alive) {
    const Worker& worker = scene_.worker(id);
    if (scene_.process(worker.process).alive) continue;  // a coordinator that lies may let its agent wait for ever
    const bool is_going = !worker.acts && worker.told;
    promise(Promise::NothingLeftRunning, worker.stuck_until.has_value() || is_going || !worker.acts, describe(worker));
  }
}

void Invariants::check_success(const std::string& who) {
  const int known = scene_.coordinator->core.round();
  const int round = known > 0 ? known : sent_round_;  // a coordinator that finds no record knows of none
  if (succeeded_ == round) return;                    // was checked before
  std::set<int> ran;
  for (const Worker& worker : scene_.workers) {
    if (worker.round != round) continue;
    promise(Promise::SuccessIsTrue, worker.reaped && worker.status.success(), who + "; " + describe(worker));
    ran.insert(worker.process);
  }
  const auto members = rounds_.find(round);
  promise(Promise::SuccessIsTrue, members != rounds_.end(), who + "; no worker ran");
  if (members == rounds_.end()) return;  // a coordinator that lies
  for (const auto& [process, run] : members->second) {
    promise(Promise::SuccessIsTrue, ran.count(process) != 0,
            who + "; no worker ran on " + scene_.process(process).config.host);
  }
  succeeded_ = round;
}

bool Invariants::was_in_trouble(const Process& process) const {
  return scene_.now <= scene_.machine(process.machine).calm_from || scene_.now <= scene_.coordinator_calm_from;
}

Time Invariants::newest_act(const Process& process) const {
  Time newest;
  for (const int id : process.workers) {
    const Worker& worker = scene_.worker(id);
    if (!worker.stuck_until) newest = std::max(newest, worker.acted_until);
  }
  return newest;
}

const Process* Invariants::process_on(const std::string& host) const {
  for (const Process& process : scene_.processes) {
    if (process.config.host == host) return &process;
  }
  return nullptr;
}

std::string Invariants::describe(const Worker& worker) const {
  return "rank " + std::to_string(worker.rank) + " of round " + std::to_string(worker.round) + " on " +
         scene_.process(worker.process).config.host + " (pid " + std::to_string(worker.pid()) + ")";
}

}  // namespace ddp::sim
