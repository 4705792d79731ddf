// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/workers_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/report/failure_hint.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/link/failures.hpp"

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::exit_code;
using rendezvous::Why;
using rendezvous::WorkerFailure;
using rendezvous::WorkersPhase;
using std::chrono::milliseconds;

namespace {

constexpr std::chrono::seconds kSayAwaitedAfter{2};  // from the signal until a line names the awaited workers
// Reasons to let a round pass. The directive of one lay unread because this process was stopped: the coordinator may
// have gone on without this node. The other one was on its way when a worker that was quiet died, or had to be killed.
constexpr char kUnread[] = "it had not heard from the coordinator for too long when the order to start them arrived";
constexpr char kUnkillable[] = "processes of the round before cannot be killed";

}  // namespace

// ---- Rounds ----

void WorkersCore::begin_round(int round) {
  state_.round = round;
  state_.succeeded = false;
  state_.failures.clear();
  state_.is_ending = false;
  state_.stopped_because.clear();
  state_.hang = rendezvous::Hang::None;
  killed_by_keeper_.clear();
}

void WorkersCore::run(const Directive& directive) {
  if (phase_ != Phase::Idle && phase_ != Phase::Quiet) {  // the coordinator gets a report once it is idle
    next_ = directive;
    if (phase_ == Phase::Starting || phase_ == Phase::Running) stop(SIGTERM);
    return;
  }
  if (!state_.unkillable.empty()) return skip_round(directive, kUnkillable);
  if (link_.is_lease_over()) return skip_round(directive, kUnread);
  if (phase_ == Phase::Quiet) return run_with_survivors(directive);
  if (!directive.reason.empty()) act(LogLine{.text = directive.reason, .is_of_job = true});
  assignment_ = directive.assignment;
  begin_budget(directive);
  assigned_round_ = directive.round;
  workers_.assign(static_cast<std::size_t>(config_.workers), {});
  told_to_stop_ = false;
  begin_round(directive.round);
  state_.phase = WorkersPhase::Running;
  phase_ = Phase::Starting;
  act(StartWorkers{assignment_});
}

// Lets a round pass that this node must not begin.
void WorkersCore::skip_round(const Directive& directive, const char* why) {
  begin_round(directive.round);
  state_.stopped_because = why;
  report();
}

// ---- What the coordinator orders ----

void WorkersCore::on_stop(const DirectiveArrived& event) {
  const Directive& directive = event.directive;
  if (directive.round > state_.round) {  // a round this node never started
    begin_round(directive.round);
    if (phase_ == Phase::Idle || phase_ == Phase::Quiet) report();
  }
  next_.reset();
  const bool is_revoked = phase_ == Phase::Revoking || phase_ == Phase::Quiet;
  if (directive.stop_signal == SIGKILL) {
    if (may_kill()) kill();
    return;
  }
  if (!may_stop() || (is_revoked && directive.survivors_stay)) return;
  if (config_.job.max_nodes > 1) act(LogLine{.text = "stopping: " + directive.reason, .is_of_job = true});
  const std::vector<int> exiting = not_told(event.exiting);
  exiting_when_told_.insert(exiting.begin(), exiting.end());
  if (state_.failures.empty()) workers_exiting_ = exiting_when_told_;
  if (directive.survivors_stay && may_revoke()) return revoke();
  if (directive.survivors_stay && workers_live())
    act(LogLine{"no worker of this node can stay: none is in ddp::run or ddprun.attempts()"});
  stop(directive.stop_signal, stacks_before(directive));
}

void WorkersCore::on_exit(Directive exit) {
  // Before the first round the coordinator's only end with code 1 that no worker has caused is the refusal of this
  // node.
  ends_alone_ = assigned_round_ == 0 && exit.exit_code == 1 && !exit.cause;
  const bool has_succeeded = phase_ == Phase::Idle && state_.succeeded;
  if (exit.exit_code == 0 && exit.round == assigned_round_ && exit.round > 0 && !has_succeeded) {
    exit.exit_code = exit_code({.why = Why::Failed});
    exit.reason = "the coordinator says '" + exit.reason + "', but not all workers of this node have succeeded";
  }
  leave_once_idle(std::move(exit));
}

// ---- Workers begin and end ----

void WorkersCore::on(const WorkersStarted& event) {
  DDP_CHECK(event.pids.size() == workers_.size(), event.pids.size(), workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i].pid = event.pids[i];
  if (phase_ == Phase::Starting) phase_ = Phase::Running;
  workers_started_ = now_;
  // A stop that came before the start reached no worker.
  if (phase_ == Phase::Stopping) act(SignalWorkers{stop_signal_});
  if (phase_ == Phase::Killing) act(KillDescendants{});
  if (phase_ == Phase::Running && suspended_) act(SuspendWorkers{});
  report();
}

void WorkersCore::on(const NeverStarted& event) {
  if (!event.why.empty()) {
    WorkerFailure failure = failure_at(0, 0, event.time);
    failure.status.code = 1;
    failure.message = event.why;
    state_.failures.push_back(std::move(failure));
  }
  note_killed();
  for (Worker& worker : workers_) worker.exited = true;
  become_idle();
}

WorkerFailure* WorkersCore::failure_of(int local_rank) {
  const auto found = std::find_if(state_.failures.begin(), state_.failures.end(),
                                  [&](const WorkerFailure& failure) { return failure.local_rank == local_rank; });
  return found == state_.failures.end() ? nullptr : &*found;
}

WorkerFailure WorkersCore::failure_at(int local_rank, int pid, rendezvous::WallTime time) const {
  WorkerFailure failure;
  failure.rank = assignment_.base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.host = config_.host;
  failure.pid = pid;
  failure.time = time;
  return failure;
}

WorkerFailure& WorkersCore::note_failure(int local_rank, rendezvous::WallTime time, const std::vector<int>& exiting) {
  if (WorkerFailure* known = failure_of(local_rank)) return *known;
  const bool first = state_.failures.empty();
  WorkerFailure failure = failure_at(local_rank, worker_at(local_rank).pid, time);
  // Whose doing it is. In a round that is being stopped a death is ddprun's doing, unless the worker was exiting
  // before.
  const bool was_told = told_to_stop_ || worker_at(local_rank).told;
  failure.already_exiting = (first && !was_told) || workers_exiting_.count(local_rank) != 0;
  const bool by_itself = failure.already_exiting || exiting_when_told_.count(local_rank) != 0;
  failure.stopped_by_ddprun = was_told && !by_itself;
  if (first && !told_to_stop_) {
    const std::vector<int> others = not_told(exiting);
    workers_exiting_.insert(others.begin(), others.end());
  }
  state_.failures.push_back(std::move(failure));
  std::vector<int>& ended_before = worker_at(local_rank).ended_before;
  ended_before = exiting;
  for (const Worker& worker : workers_) {
    if (worker.success) ended_before.push_back(local_rank_of(worker));
  }
  return state_.failures.back();
}

void WorkersCore::take_words(WorkerFailure& failure, const WorkerWords& words) {
  if (failure.message.empty()) failure.message = words.message;
  failure.stderr_tail = words.stderr_tail;
  failure.error_record = words.error_record;
  failure.stderr_log = words.stderr_log;
  failure.flight_recorder = words.flight_recorder;
  // The worker may have taken its time to end, so that the death of another one was noticed first.
  if (words.failed_by) failure.time = std::min(failure.time, *words.failed_by);
  if (failure.stopped_by_ddprun) return;
  std::vector<int> ended_before;
  for (const int other : worker_at(failure.local_rank).ended_before) {
    const bool is_success = worker_at(other).success;
    if (is_success) ended_before.push_back(assignment_.base_rank + other);
  }
  failure.hint = hint_for(failure, {config_.python, words.log_error, words.gpu_fault, words.has_stdin, ended_before});
}

// Returns those of these workers that were not told to end, each by itself, since they cannot stay.
std::vector<int> WorkersCore::not_told(std::vector<int> local_ranks) const {
  std::erase_if(local_ranks, [this](int local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    return index < workers_.size() && workers_[index].told;
  });
  return local_ranks;
}

void WorkersCore::set_status(WorkerFailure& failure, const rendezvous::ExitStatus& status) const {
  failure.status = status;
  const bool is_shells = status.code == rendezvous::kCannotExecute || status.code == rendezvous::kNotFound;
  failure.never_ran = is_shells && !failure.stopped_by_ddprun && now_ - workers_started_ <= kFirstSecond;
}

void WorkersCore::on(const WorkerDying& event) {
  // In other phases the worker's end is awaited anyway, and WorkerExited decides whose doing it is.
  const bool has_waited = phase_ == Phase::Quiet && worker_at(event.local_rank).quiet;
  if ((phase_ != Phase::Running && !has_waited) || failure_of(event.local_rank) != nullptr) return;
  WorkerFailure& failure = note_failure(event.local_rank, event.time, event.exiting);
  worker_at(event.local_rank).quiet = false;  // it does not wait any more: it is reaped first
  set_status(failure, event.status);
  failure.message = event.message;
  if (has_waited) {  // the next round is to fill its place
    phase_ = Phase::Revoking;
    state_.phase = WorkersPhase::Stopping;
    deadline_ = now_ + config_.shutdown_timeout;
  }
  report();  // the coordinator decides for all nodes at once
}

void WorkersCore::on(const WorkerExited& event) {
  Worker& worker = worker_at(event.local_rank);
  DDP_CHECK(!worker.exited, event.local_rank);
  WorkerFailure* failure = failure_of(event.local_rank);
  const bool is_news = failure == nullptr;
  worker.exited = true;
  if (phase_ == Phase::Idle || phase_ == Phase::Left) return;  // this node had given up on it
  worker.success = event.status.success() && is_news;          // a worker that was reported as dying has failed
  // In a round that this node has not begun it has no ranks.
  const bool is_of_round = state_.round == assigned_round_;
  if (!worker.success && !is_of_round) note_killed();
  if (!worker.success && is_of_round) {
    if (is_news) failure = &note_failure(event.local_rank, event.time, event.exiting);
    if (!event.status.success()) set_status(*failure, event.status);
    if (!event.message.empty()) failure->message = event.message;
    if (!event.out_of_memory.empty()) failure->out_of_memory = event.out_of_memory;
    note_killed();
  }
  if (phase_ != Phase::Killing) {
    worker.leftover_grace = told_to_stop_ ? config_.shutdown_timeout : leftover_grace();
    worker.leftovers_until = told_to_stop_ ? *deadline_ : now_ + leftover_grace();
  }
  if (!workers_live()) {
    await_leftovers();
  } else if (phase_ == Phase::Revoking) {
    await_quiet();
  } else if (!worker.success && is_news && (phase_ == Phase::Running || phase_ == Phase::Quiet)) {
    if (phase_ == Phase::Running || !awaits_words()) report();  // the coordinator decides for all nodes at once
  }
}

// With a window, what the coordinator had counted when the round began counts for a whole window: then the agent may
// find too few left, and the coordinator decides.
int WorkersCore::restarts_used() const { return has_window() ? budget_.used(now_) : assignment_.restart_count; }

void WorkersCore::begin_budget(const Directive& run) {
  budget_ = rendezvous::RestartBudget(config_.job);
  const int used = config_.job.max_restarts - run.restarts_left.value_or(config_.job.max_restarts);
  for (int i = 0; i < used; ++i) budget_.spend(now_);
}

void WorkersCore::on(const MissingStarted& event) {
  worker_at(event.local_rank).pid = event.pid;
  if (phase_ != Phase::Running)
    return act(SignalWorker{event.local_rank, SIGKILL});  // what came meanwhile did not reach it
  if (suspended_) act(SuspendWorkers{});
}

// ---- What the workers left ----

// The workers have exited. What they left has the rest of its time, unless it was killed with them.
void WorkersCore::await_leftovers() {
  if (phase_ == Phase::Killing) {
    deadline_ = now_ + kUnkillableAfter;
  } else {
    phase_ = Phase::Lingering;
    deadline_ = std::max_element(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) {
                  return a.leftovers_until < b.leftovers_until;
                })->leftovers_until;
  }
  act(ClearDescendants{});
}

milliseconds WorkersCore::leftover_grace() const {
  return std::min<milliseconds>(kLeftoverGrace, config_.shutdown_timeout);
}

void WorkersCore::kill_leftovers() {
  for (Worker& worker : workers_) {
    if (!may_kill() || !worker.leftovers_until || now_ < *worker.leftovers_until) continue;
    worker.leftovers_until.reset();
    act(KillLeftovers{local_rank_of(worker), worker.leftover_grace});
  }
}

void WorkersCore::on(const AllGone& event) {
  if (phase_ != Phase::Killing && phase_ != Phase::Lingering) return;  // this node had given up on them
  for (WorkerFailure& failure : state_.failures) {
    const auto index = static_cast<std::size_t>(failure.local_rank);
    if (index >= event.words.size()) continue;
    take_words(failure, event.words[index]);
  }
  keep_within_link(state_.failures);
  become_idle();
}

void WorkersCore::become_idle() {
  phase_ = Phase::Idle;
  deadline_.reset();
  tell_waiting_at_.reset();
  workers_exiting_.clear();
  exiting_when_told_.clear();
  state_.phase = WorkersPhase::Idle;
  state_.succeeded = std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.success; });
  // One report, not two: a node that is idle and has not left would get a seat in the next round.
  if (exit_) return leave(*exit_);
  report();
  if (next_) run(*std::exchange(next_, std::nullopt));
}

// ---- Stops, kills and the end ----

void WorkersCore::watch() {
  if (deadline_ && now_ >= *deadline_) escalate();
  kill_leftovers();
  tell_waiting();
}

std::optional<TimePoint> WorkersCore::wake_at() const {
  std::optional<TimePoint> soonest = earlier(deadline_, tell_waiting_at_);
  for (const Worker& worker : workers_) {
    if (may_kill()) soonest = earlier(soonest, worker.leftovers_until);
  }
  return soonest;
}

// Its workers and what they left may have slept, too.
void WorkersCore::forgive_sleep(std::chrono::nanoseconds slept) {
  if (deadline_) *deadline_ += slept;
  for (Worker& worker : workers_) {
    if (worker.leftovers_until) *worker.leftovers_until += slept;
  }
}

// Tells a user whose signal does not end the job at once how long it may take.
void WorkersCore::tell_waiting() {
  if (!tell_waiting_at_ || now_ < *tell_waiting_at_) return;
  tell_waiting_at_.reset();
  if (phase_ != Phase::Stopping && phase_ != Phase::Lingering) return;
  const auto live = std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
  const std::string awaited = live == 0   ? "processes that the workers left"
                              : live == 1 ? "1 worker"
                                          : std::to_string(live) + " workers";
  const std::string again =
      rendezvous::signal_name(agent_.users_signal) + (agent_.users_signal == SIGINT ? " (Ctrl-C)" : "");
  act(LogLine{.text = "waiting for " + awaited + " to end, for another " +
                      in_seconds(std::chrono::ceil<std::chrono::seconds>(*deadline_ - now_)) +
                      " at most (--shutdown-timeout); another " + again + " kills them at once",
              .is_of_job = true});
}

void WorkersCore::on(const HangFound& event) {
  if (phase_ != Phase::Running || config_.on_hang == OnHang::Tell) return;
  // A worker that is quiet has noticed a failure before the coordinator: a recovery is no hang.
  if (std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited && w.quiet; })) return;
  state_.stopped_because = event.why;
  const bool is_alone = config_.job.max_nodes == 1;
  if (config_.on_hang == OnHang::Stop && is_alone) return end({.why = Why::Hang}, event.why);
  state_.hang = config_.on_hang == OnHang::Stop ? rendezvous::Hang::End : rendezvous::Hang::Restart;
  report();  // the coordinator decides whether a restart is left
  stop(SIGTERM);
}

// Suspends running workers only. Those that are being stopped would spend their grace period asleep. Resumes workers
// even if ddprun has not suspended them: a worker may have stopped itself.
void WorkersCore::on(const Suspend& event) {
  suspended_ = !event.is_over;
  if (phase_ == Phase::Running) act(SuspendWorkers{event.is_over});
}

void WorkersCore::end(const rendezvous::Outcome& outcome, std::string reason) {
  if (!exit_) ends_alone_ = true;
  Directive exit;
  exit.kind = Directive::Kind::Exit;
  exit.why = outcome.why;
  exit.exit_code = exit_code(outcome);
  exit.reason = std::move(reason);
  const auto own = std::find_if(state_.failures.begin(), state_.failures.end(),
                                [](const WorkerFailure& failure) { return !failure.stopped_by_ddprun; });
  // No other node may know of this failure.
  if (own != state_.failures.end()) exit.reason += "; before that, " + describe(*own);
  leave_once_idle(exit_.value_or(exit));
}

// Leaves, the workers first.
void WorkersCore::leave_once_idle(Directive exit) {
  if (phase_ == Phase::Idle) return leave(std::move(exit));
  exit_ = std::move(exit);
  if (may_stop()) stop(SIGTERM);
}

// Stacks cost the next round time, so they are taken only if there is none, or if they are what explains the failure.
StacksUse WorkersCore::stacks_before(const Directive& stop) const {
  if (!config_.takes_stacks || !stop.cause) return StacksUse::NotTaken;
  if (restarts_used() >= config_.job.max_restarts) return StacksUse::Reported;
  const bool is_needed = is_timeout(stop.cause->message) && !config_.keeps_memory;
  return is_needed ? StacksUse::Logged : StacksUse::NotTaken;
}

void WorkersCore::stop(int signal, StacksUse stacks) {
  phase_ = Phase::Stopping;
  stop_signal_ = signal;
  told_to_stop_ = true;
  state_.phase = WorkersPhase::Stopping;
  deadline_ = now_ + config_.shutdown_timeout;
  if (agent_.users_signal != 0) tell_waiting_at_ = now_ + kSayAwaitedAfter;
  if (suspended_) act(SuspendWorkers{.is_over = true});  // a stopped process handles no signal
  act(SignalWorkers{signal, stacks});
}

// Some may have ended before the keeper killed them: if all have succeeded, nothing happened.
void WorkersCore::note_keeper(std::chrono::nanoseconds not_run) {
  if (workers_live()) {
    killed_by_keeper_ = "ddprun's keeper killed them, since the agent did not run for " + in_seconds(not_run) +
                        " (was it stopped, or its machine asleep?)";
  }
  kill();
}

// Reports what the keeper did, now that a worker is known not to have succeeded.
void WorkersCore::note_killed() {
  if (killed_by_keeper_.empty()) return;
  state_.stopped_because = std::exchange(killed_by_keeper_, {});
  act(LogLine{"the workers of this node are dead: " + state_.stopped_because});
  report();
}

void WorkersCore::kill() {
  phase_ = Phase::Killing;
  told_to_stop_ = true;
  state_.phase = WorkersPhase::Stopping;  // they may have been quiet
  deadline_ = now_ + kUnkillableAfter;
  tell_waiting_at_.reset();
  act(KillDescendants{});
}

void WorkersCore::kill_because(const std::string& reason) {
  act(LogLine{"killing the workers of this node: " + reason});
  if (workers_live()) {
    if (state_.hang == rendezvous::Hang::None) state_.stopped_because = reason;  // else the hang came first
    state_.phase = WorkersPhase::Stopping;
    report();  // before the kill, which ends workers that are not started yet and causes another report
  }
  kill();
}

void WorkersCore::escalate() {
  switch (phase_) {
    case Phase::Stopping:
      act(LogLine{"the workers did not end within " + in_seconds(config_.shutdown_timeout) +
                  " (--shutdown-timeout): killing them"});
      kill();
      break;
    case Phase::Lingering:
      act(LogLine{"processes that the workers left did not end within " +
                  (told_to_stop_ ? in_seconds(config_.shutdown_timeout) + " (--shutdown-timeout)"
                                 : in_seconds(leftover_grace()) + " of SIGTERM") +
                  ": killing them"});
      kill();
      break;
    case Phase::Revoking:
      kill_late_survivors();
      break;
    case Phase::Killing:
      for (const Worker& worker : workers_) {
        if (!worker.exited) state_.unkillable.push_back(worker.pid);
      }
      if (state_.unkillable.empty()) state_.unkillable.push_back(0);  // a descendant, not a worker
      act(LogLine{"processes of this job cannot be killed (stuck in the kernel?); giving up on them"});
      note_killed();
      become_idle();
      break;
    case Phase::Idle:
    case Phase::Starting:
    case Phase::Running:
    case Phase::Quiet:
    case Phase::Left:
      deadline_.reset();
      break;
  }
}

void WorkersCore::leave(Directive directive) {
  phase_ = Phase::Left;
  deadline_.reset();
  state_.left = true;
  report();
  const Why why = state_.unkillable.empty() ? Why::None : Why::Unkillable;
  const int code = exit_code({.why = why, .first = {.code = directive.exit_code}});
  act(Leave{code, std::move(directive), state_.unkillable, ends_alone_});
}

bool WorkersCore::may_kill() const {
  const bool may_linger = phase_ == Phase::Lingering;
  return may_stop() || phase_ == Phase::Stopping || may_linger;
}

bool WorkersCore::may_stop() const {
  const bool may_survive = phase_ == Phase::Revoking || phase_ == Phase::Quiet;
  return phase_ == Phase::Starting || phase_ == Phase::Running || may_survive;
}

bool WorkersCore::workers_live() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
}

}  // namespace ddp::launcher
