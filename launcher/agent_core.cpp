// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent_core.hpp"

#include <algorithm>
#include <csignal>

#include "rendezvous/check.hpp"

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::WorkerFailure;
using rendezvous::WorkersPhase;

AgentCore::AgentCore(AgentConfig config) : config_(std::move(config)) {
  state_.job = config_.job;
  state_.incarnation = config_.incarnation;
  state_.host = config_.host;
  state_.node_rank = config_.node_rank;
  state_.slots = config_.workers;
}

void AgentCore::step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions) {
  if (phase_ == Phase::Left) return;  // whatever still comes in, the job is over
  now_ = now;
  actions_ = &actions;
  std::visit([this](const auto& e) { on(e); }, event);
  actions_ = nullptr;
}

void AgentCore::on(const DirectiveArrived& event) {
  const Directive& directive = event.directive;
  if (directive.round < state_.round) return;  // about a round that is past
  switch (directive.kind) {
    case Directive::Kind::Wait:
      break;
    case Directive::Kind::Run:
      if (directive.round > state_.round) run(directive);  // else a repetition
      break;
    case Directive::Kind::Stop:
      if (directive.round > state_.round) {  // a round this node never started
        state_.round = directive.round;
        state_.failures.clear();
        state_.succeeded = false;
        if (phase_ == Phase::Idle) report();
      }
      if (phase_ == Phase::Starting || phase_ == Phase::Running) stop(directive.stop_signal);
      break;
    case Directive::Kind::Exit:
      if (phase_ == Phase::Idle) return leave(directive);
      exit_ = directive;  // workers first
      if (phase_ == Phase::Starting || phase_ == Phase::Running) stop(SIGTERM);
      break;
  }
}

void AgentCore::run(const Directive& directive) {
  DDP_CHECK(phase_ == Phase::Idle, static_cast<int>(phase_), directive.round);
  if (!directive.reason.empty()) act(Say{directive.reason});
  assignment_ = directive.assignment;
  workers_.assign(static_cast<std::size_t>(config_.workers), {});
  told_to_stop_ = false;
  state_.round = directive.round;
  state_.phase = WorkersPhase::Running;
  state_.succeeded = false;
  state_.failures.clear();
  state_.unkillable.clear();
  phase_ = Phase::Starting;
  act(StartWorkers{assignment_});
}

void AgentCore::on(const WorkersStarted& event) {
  DDP_CHECK(event.pids.size() == workers_.size(), event.pids.size(), workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i].pid = event.pids[i];
  if (phase_ == Phase::Starting) phase_ = Phase::Running;
  report();
}

void AgentCore::on(const SpawnFailed& event) {
  WorkerFailure failure;
  failure.rank = assignment_.base_rank;
  failure.host = config_.host;
  failure.status.code = 1;
  failure.message = event.why;
  state_.failures.push_back(std::move(failure));
  for (Worker& worker : workers_) worker.exited = true;
  become_idle();
}

void AgentCore::on(const WorkerExited& event) {
  Worker& worker = workers_.at(static_cast<std::size_t>(event.local_rank));
  DDP_CHECK(!worker.exited, event.local_rank);
  worker.exited = true;
  worker.success = event.status.success();
  if (!worker.success) {
    const bool first = state_.failures.empty();
    WorkerFailure failure;
    failure.rank = assignment_.base_rank + event.local_rank;
    failure.local_rank = event.local_rank;
    failure.host = config_.host;
    failure.pid = worker.pid;
    failure.status = event.status;
    failure.time = event.time;
    failure.message = event.message;
    // In a round that is being stopped a death is our doing, unless it was under way before.
    failure.already_exiting = first || workers_exiting_.count(event.local_rank) != 0;
    failure.stopped_by_ddprun = told_to_stop_ && !failure.already_exiting;
    if (first) workers_exiting_.insert(event.exiting.begin(), event.exiting.end());
    state_.failures.push_back(std::move(failure));
  }
  if (!workers_live()) {
    phase_ = Phase::Clearing;
    deadline_ = now_ + kUnkillableAfter;
    act(ClearDescendants{});
  } else if (!worker.success && phase_ == Phase::Running) {
    report();  // the coordinator decides for all nodes at once
  }
}

void AgentCore::on(const AllGone& event) {
  if (phase_ != Phase::Clearing) return;  // given up on before
  for (WorkerFailure& failure : state_.failures) {
    const auto index = static_cast<std::size_t>(failure.local_rank);
    if (index >= event.words.size()) continue;
    if (failure.message.empty()) failure.message = event.words[index].message;
    failure.stderr_tail = event.words[index].stderr_tail;
  }
  become_idle();
}

void AgentCore::become_idle() {
  phase_ = Phase::Idle;
  deadline_.reset();
  workers_exiting_.clear();
  state_.phase = WorkersPhase::Idle;
  state_.succeeded = std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.success; });
  report();
  if (exit_) leave(*exit_);
}

void AgentCore::on(const StopSignal& event) {
  if (state_.stop_signal != 0) {
    if (phase_ == Phase::Starting || phase_ == Phase::Running || phase_ == Phase::Stopping) {
      act(Say{"second signal: killing the workers"});
      kill();
    }
    return;
  }
  state_.stop_signal = event.signal;
  report();
}

void AgentCore::on(const GuardianGone&) {
  Directive killed;
  killed.kind = Directive::Kind::Exit;
  killed.exit_code = 128 + SIGKILL;
  killed.reason = "ddprun's guardian process was killed";
  exit_ = killed;
  if (phase_ == Phase::Idle) return leave(killed);
  if (phase_ != Phase::Clearing) kill();
}

void AgentCore::on(const CoordinatorGone& event) {
  Directive lost;
  lost.kind = Directive::Kind::Exit;
  lost.exit_code = 1;
  lost.reason = "the link to the coordinator broke: " + event.why;
  exit_ = lost;
  if (phase_ == Phase::Idle) return leave(lost);
  if (phase_ == Phase::Starting || phase_ == Phase::Running) stop(SIGTERM);
}

void AgentCore::stop(int signal) {
  phase_ = Phase::Stopping;
  told_to_stop_ = true;
  state_.phase = WorkersPhase::Stopping;
  deadline_ = now_ + config_.shutdown_timeout;
  act(SignalWorkers{signal});
}

void AgentCore::kill() {
  phase_ = Phase::Killing;
  told_to_stop_ = true;
  deadline_ = now_ + kUnkillableAfter;
  act(KillDescendants{});
}

void AgentCore::on(const Tick&) {
  if (!deadline_ || now_ < *deadline_) return;
  switch (phase_) {
    case Phase::Stopping:
      act(Say{"the workers did not end within " +
              std::to_string(std::chrono::duration_cast<std::chrono::seconds>(config_.shutdown_timeout).count()) +
              " s (--shutdown-timeout): killing them"});
      kill();
      break;
    case Phase::Killing:
    case Phase::Clearing:
      for (const Worker& worker : workers_) {
        if (!worker.exited) state_.unkillable.push_back(worker.pid);
      }
      if (state_.unkillable.empty()) state_.unkillable.push_back(0);  // a descendant, not a worker
      act(Say{"processes of this job cannot be killed (stuck in the kernel?); giving up on them"});
      become_idle();
      break;
    case Phase::Idle:
    case Phase::Starting:
    case Phase::Running:
    case Phase::Left:
      deadline_.reset();
      break;
  }
}

void AgentCore::leave(Directive directive) {
  phase_ = Phase::Left;
  deadline_.reset();
  const int exit_code = directive.exit_code == 0 && !state_.unkillable.empty() ? 1 : directive.exit_code;
  act(Leave{exit_code, std::move(directive), state_.unkillable});
}

bool AgentCore::workers_live() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
}

}  // namespace ddp::launcher
