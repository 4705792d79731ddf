// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/agent_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/report/failure_hint.hpp"
#include "rendezvous/base/check.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/failures.hpp"

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::exit_code;
using rendezvous::Why;
using rendezvous::WorkerFailure;
using rendezvous::WorkersPhase;
using std::chrono::milliseconds;

namespace {

constexpr int kBeatsPerLife = 15;  // heartbeats in lost_after; one a second by default
constexpr std::chrono::seconds kFirstWaitingLine{2};
constexpr std::chrono::seconds kOverslept{2};  // a Tick this late means that this process was stopped
constexpr std::chrono::seconds kBetweenWaitingLines{5};
// Reasons to let a round pass. The directive of one lay unread because this process was stopped: the coordinator may
// have gone on without this node. The other one was on its way when a worker that was quiet died, or had to be killed.
constexpr char kUnread[] = "it had not heard from the coordinator for too long when the order to start them arrived";
constexpr char kUnkillable[] = "processes of the round before cannot be killed";

std::string in_seconds(std::chrono::nanoseconds time) {
  return rendezvous::to_string(std::chrono::duration_cast<std::chrono::seconds>(time));
}

}  // namespace

AgentCore::AgentCore(AgentConfig config) : config_(std::move(config)) {
  state_.job = config_.job;
  state_.incarnation = config_.incarnation;
  state_.host = config_.host;
  state_.addresses = config_.addresses;
  state_.endpoint_host = config_.endpoint_host;
  state_.node_rank = config_.node_rank;
  state_.wanted_rank = config_.wanted_rank;
  state_.role = config_.role;
  state_.slots = config_.workers;
  state_.can_look = true;
}

void AgentCore::step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions) {
  if (phase_ == Phase::Left) return;  // the job is over, whatever still arrives
  now_ = now;
  actions_ = &actions;
  if (!started_) {
    started_ = heard_ = now;
    next_waiting_line_ = now + kFirstWaitingLine;
  }
  forgive_own_sleep();
  notice_deadman();
  std::visit([this](const auto& e) { on(e); }, event);
  set_deadman();
  last_step_ = now;
  due_ = wake_at();
  if (due_) due_ = std::max(*due_, now);  // a sleep is forgiven once
  actions_ = nullptr;
}

// ---- The link ----

void AgentCore::on(const LinkUp& event) {
  state_.coordinator_address = event.coordinator_address;
  is_beside_now_ = event.is_beside;
  // A new link is a sign of life, but not a second one over which nothing came.
  (is_new_link_ ? reconnected_.emplace() : heard_) = now_;
  linked_ = is_new_link_ = true;
  is_older_link_ = false;
  round_trips_.clear();
  asked_ = now_;
  if (lost_after_.count() > 0) next_beat_ = now_ + lost_after_ / kBeatsPerLife;
  report();
}

void AgentCore::on(const LinkDown& event) {
  linked_ = false;
  why_not_linked_ = event.why;
  next_beat_.reset();
  asked_.reset();
  if (is_coordinators()) return end({.why = Why::Failed}, "the link to the coordinator broke: " + event.why);
  if (!joined()) return;   // nothing came over it
  if (!cut_) cut_ = now_;  // the first cut counts: the coordinator may not have seen the links since
  act(LogLine{"the link to the coordinator at " + config_.coordinator + " broke (" + event.why + "); trying again"});
}

// Moves heard_ forward by the time that this process was stopped, when the coordinator's messages lay unread, and what
// the workers and their leftovers have as their grace, since they may have slept, too. The coordinator may have gone on
// without this node meanwhile, so the lease of the workers runs out all the same.
void AgentCore::forgive_own_sleep() {
  if (!due_ || now_ - *due_ < kOverslept) return;
  const auto slept = now_ - *due_;
  heard_ += slept;
  if (deadline_) *deadline_ += slept;
  for (Worker& worker : workers_) {
    if (worker.leftovers_until) *worker.leftovers_until += slept;
  }
}

// Notes that the keeper has killed the workers, before any of their deaths is handled. Some may have ended before it
// did: if all have succeeded, nothing happened.
void AgentCore::notice_deadman() {
  if (deadman_ && now_ >= *deadman_) {
    if (workers_live()) {
      killed_by_keeper_ = "ddprun's keeper killed them, since the agent did not run for " +
                          in_seconds(now_ - last_step_) + " (was it stopped, or its machine asleep?)";
    }
    kill();
  }
  if (is_coordinators()) answered_ = now_;
}

// Reports it, now that a worker is known not to have succeeded.
void AgentCore::note_killed() {
  if (killed_by_keeper_.empty()) return;
  state_.stopped_because = std::exchange(killed_by_keeper_, {});
  act(LogLine{"the workers of this node are dead: " + state_.stopped_because});
  report();
}

void AgentCore::set_deadman() {
  const auto until = phase_ == Phase::Left ? std::nullopt : kill_at();
  const auto at = until ? std::optional(*until + kKeeperWaits) : std::nullopt;
  if (at != std::exchange(deadman_, at)) act(SetDeadman{at});
}

void AgentCore::on(const LinkFailed& event) {
  if (event.is_etcds) etcds_trouble_ = event.why;
  if (!event.why.empty()) why_not_linked_ = event.why;
}

void AgentCore::on(const LinkRefused& event) { end({.why = Why::Failed}, event.why); }

void AgentCore::on(const BeatArrived&) {
  if (is_older_link_) return;
  heard_ = now_;
  if (asked_ && !is_new_link_ && !takes_coordinator_along()) round_trips_.add(now_ - *asked_);
  answered();
}

// Notes an answer. Only one message is unanswered at a time, so the answer belongs to it.
void AgentCore::answered() {
  if (asked_) answered_ = *std::exchange(asked_, std::nullopt);
  if (std::exchange(is_new_link_, false) && cut_) {
    act(LogLine{"the link to the coordinator is back"});
    cut_.reset();
  }
}

// Returns when the lease of this node's workers ends; see the head of agent_core.hpp.
TimePoint AgentCore::lease_until() const {
  const TimePoint silent = answered_ + lost_after_ * 2 / 3;
  return cut_ ? std::min(silent, *cut_ + back_within_ * 2 / 3) : silent;
}

std::optional<TimePoint> AgentCore::kill_at() const {
  if (!joined() || lost_after_.count() == 0 || is_released_ || !may_kill()) return std::nullopt;
  return lease_until();
}

TimePoint AgentCore::reconnect_at() const { return std::max(heard_, reconnected_.value_or(heard_)) + lost_after_ / 3; }

void AgentCore::watch_lease() {
  const auto until = kill_at();
  if (!until || now_ < *until) return;
  const std::string why = cut_ ? why_not_linked_ : "no word for " + in_seconds(now_ - answered_);
  kill_because("it had lost the coordinator (" + (etcds_trouble_.empty() ? why : etcds_trouble_) + ")");
}

// Returns when a node that has found no coordinator gives up.
TimePoint AgentCore::joins_until() const {
  const TimePoint asked_for = *started_ + config_.join_timeout;
  return named_ ? std::max(asked_for, *named_ + config_.named_timeout) : asked_for;
}

void AgentCore::watch_link() {
  if (!joined()) {
    const auto joins_within = joins_until() - *started_;
    if (now_ >= joins_until()) {
      const std::string which = joins_within > config_.join_timeout
                                    ? ", longer than --rdzv-conf join_timeout, since etcd names a node: "
                                    : " (--rdzv-conf join_timeout): ";
      return end({.why = Why::NoCoordinator}, "no coordinator at " + config_.coordinator + " within " +
                                                  in_seconds(joins_within) + which + why_not_linked_ + config_.advice);
    }
    if (!linked_ && now_ >= *next_waiting_line_) {
      next_waiting_line_ = now_ + kBetweenWaitingLines;
      act(LogLine{"waiting for the coordinator at " + config_.coordinator + ": " + why_not_linked_ + "; " +
                  in_seconds(now_ - *started_) + " of " + in_seconds(joins_within) + config_.advice});
    }
    return;
  }
  if (lost_after_.count() == 0) return;
  // A silent coordinator: leave, give the link up, or send a heartbeat.
  const auto silence = now_ - heard_;
  if (silence >= lost_after_ && !exit_) {
    const std::string why = !older_.empty()           ? older_ + "; has etcd lost its data?"
                            : !etcds_trouble_.empty() ? etcds_trouble_
                            : linked_                 ? ""
                                                      : why_not_linked_;
    return end({.why = Why::CoordinatorLost}, "the coordinator at " + config_.coordinator +
                                                  " is gone: no word from it for " + in_seconds(lost_after_) +
                                                  (why.empty() ? "" : " (" + why + ")"));
  }
  if (!linked_) return;
  if (now_ >= reconnect_at()) {
    reconnected_ = now_;
    return act(Reconnect{older_.empty() ? "no word for " + in_seconds(silence) : older_});
  }
  if (!asked_ && now_ >= *next_beat_) {
    asked_ = now_;
    next_beat_ = now_ + lost_after_ / kBeatsPerLife;
    act(SendHeartbeat{});
  }
}

std::optional<TimePoint> AgentCore::wake_at() const {
  std::optional<TimePoint> soonest;
  const auto consider = [&](std::optional<TimePoint> time) {
    if (time && (!soonest || *time < *soonest)) soonest = time;
  };
  consider(deadline_);
  consider(decision_until_);
  consider(tell_waiting_at_);
  consider(kill_at());
  for (const Worker& worker : workers_) {
    if (may_kill()) consider(worker.leftovers_until);
  }
  if (is_coordinators() && deadman_) consider(last_step_ + lost_after_ / kBeatsPerLife);
  if (phase_ == Phase::Left || !started_ || is_coordinators()) return soonest;
  if (!joined()) {
    consider(joins_until());
    if (!linked_) consider(next_waiting_line_);
  } else if (lost_after_.count() > 0) {
    if (!exit_) consider(heard_ + lost_after_);
    if (linked_) consider(reconnect_at());
    if (linked_ && !asked_) consider(next_beat_);
  }
  return soonest;
}

// ---- Directives ----

// Returns what in a directive cannot be meant for this node, as far as accept() could not know; empty: nothing.
std::string AgentCore::why_not_believed(const Directive& directive) const {
  if (directive.kind != Directive::Kind::Run) return "";
  const rendezvous::Assignment& place = directive.assignment;
  const rendezvous::JobShape& job = config_.job;
  const auto counted = [](int number, const char* what) { return std::to_string(number) + " " + what; };
  if (place.node_count < job.min_nodes || place.node_count > job.max_nodes) return counted(place.node_count, "nodes");
  if (job.node_ranks_given && place.node_rank != config_.node_rank) {
    return "node rank " + std::to_string(place.node_rank);
  }
  const bool is_over = !has_window() && place.restart_count > place.max_restarts;
  if (place.max_restarts != job.max_restarts || is_over) {
    return counted(place.restart_count, "restarts of ") + std::to_string(place.max_restarts);
  }
  const bool has_ranks = place.base_rank <= place.world_size - config_.workers &&
                         place.base_role_rank <= place.role_world_size - config_.workers;
  if (has_ranks) return "";
  return counted(config_.workers, "workers") + " from rank " + std::to_string(place.base_rank) + " of " +
         std::to_string(place.world_size);
}

// Whether an older coordinator speaks than this agent has obeyed.
bool AgentCore::is_fenced_off(const Directive& directive) const {
  const bool are_numbers = !directive.instance.empty() && !state_.instance.empty();
  return are_numbers && rendezvous::is_older_epoch(directive.epoch, state_.epoch);
}

// The older coordinator may have been stopped just before it sent this, so the next link may lead to the newer one. If
// it leads to an older one again, another try at once would do the same: the link is left as a silent one is.
void AgentCore::meet_older(const Directive& directive) {
  const bool is_first = older_.empty();
  older_ = "an older coordinator speaks (epoch " + directive.epoch + ", the newest is " + state_.epoch + ")";
  is_older_link_ = true;
  if (is_first) act(Reconnect{older_});
}

// Whether the coordinator is none of this agent's job. A newer one of the job takes the place of the one before.
bool AgentCore::is_of_other_job(const Directive& directive) const {
  if (!joined()) return false;
  if (directive.instance != state_.instance) return true;
  return directive.instance.empty() && directive.epoch != state_.epoch;
}

void AgentCore::on(const DirectiveArrived& event) {
  const Directive& directive = event.directive;
  if (is_fenced_off(directive)) return meet_older(directive);
  if (const std::string what = why_not_believed(directive); !what.empty()) {
    return end({.why = Why::Failed}, "the coordinator" +
                                         (config_.coordinator.empty() ? "" : " at " + config_.coordinator) +
                                         " gives this node what cannot be its own: " + what);
  }
  // Every directive shows that the coordinator is there, and carries its settings.
  if (is_of_other_job(directive)) {
    // A coordinator of the next job with this id says in its refusal what it knows of this one.
    const bool is_refusal = !directive.instance.empty() && directive.kind == Directive::Kind::Exit;
    if (is_refusal) return on_exit(directive);
    return end({.why = Why::JobIsGone},
               "another coordinator answers at " + config_.coordinator + "; the one this node served is gone");
  }
  state_.epoch = directive.epoch;
  state_.instance = directive.instance;
  older_.clear();
  heard_ = now_;
  // The first directive answers this link's report; others may come from a coordinator that hears nothing from here.
  if (is_new_link_) answered();
  lost_after_ = directive.lost_after;
  back_within_ = directive.back_within;
  if (lost_after_.count() > 0 && !next_beat_) next_beat_ = now_ + lost_after_ / kBeatsPerLife;
  // Obey it.
  if (directive.round < (next_ ? next_->round : state_.round)) return;  // about an older round
  switch (directive.kind) {
    case Directive::Kind::Wait:
      if (!directive.reason.empty()) act(LogLine{.text = directive.reason, .is_of_job = true});
      break;
    case Directive::Kind::Run:
      if (directive.round > state_.round) run(directive);  // else a repetition
      break;
    case Directive::Kind::Stop:
      decision_until_.reset();
      if (directive.round > state_.round) {  // a round this node never started
        begin_round(directive.round);
        if (phase_ == Phase::Idle || phase_ == Phase::Quiet) report();
      }
      next_.reset();
      return on_stop(event);
    case Directive::Kind::Exit:
      return on_exit(directive);
  }
}

void AgentCore::on_stop(const DirectiveArrived& event) {
  const Directive& directive = event.directive;
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

void AgentCore::on_exit(Directive exit) {
  decision_until_.reset();
  // The first end stands: another coordinator may come while the workers end, and find that the record is gone.
  if (std::exchange(is_released_, true)) return;
  // Before the first round the coordinator's only end with code 1 that no worker has caused is the refusal of this
  // node.
  ends_alone_ = assigned_round_ == 0 && exit.exit_code == 1 && !exit.cause;
  const bool has_succeeded = phase_ == Phase::Idle && state_.succeeded;
  if (exit.exit_code == 0 && exit.round == assigned_round_ && exit.round > 0 && !has_succeeded) {
    exit.exit_code = exit_code({.why = Why::Failed});
    exit.reason = "the coordinator says '" + exit.reason + "', but not all workers of this node have succeeded";
  }
  if (phase_ == Phase::Idle) return leave(exit);
  exit_ = exit;  // workers first
  if (may_stop()) stop(SIGTERM);
}

// ---- Workers ----

void AgentCore::begin_round(int round) {
  state_.round = round;
  state_.succeeded = false;
  state_.failures.clear();
  state_.is_ending = false;
  state_.stopped_because.clear();
  state_.hang = rendezvous::Hang::None;
  killed_by_keeper_.clear();
}

void AgentCore::run(const Directive& directive) {
  if (phase_ == Phase::Quiet) return run_with_survivors(directive);
  if (phase_ != Phase::Idle) {  // the coordinator takes it for idle; it gets a report once that is true
    next_ = directive;
    if (phase_ == Phase::Starting || phase_ == Phase::Running) stop(SIGTERM);
    return;
  }
  if (!state_.unkillable.empty()) return skip_round(directive, kUnkillable);
  if (lost_after_.count() > 0 && now_ >= lease_until()) return skip_round(directive, kUnread);
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

// ---- Survivors ----

void AgentCore::on(const WorkerStays& event) {
  const bool stayed = std::exchange(workers_.at(static_cast<std::size_t>(event.local_rank)).stays, event.stays);
  if (!stayed || event.stays || std::exchange(state_.is_ending, true)) return;
  report();  // it is done with all that others need it for
}

// One may be quiet before this node learns that the round has failed, since the store tells the workers, too.
void AgentCore::on(const WorkerQuiet& event) {
  Worker& worker = workers_.at(static_cast<std::size_t>(event.local_rank));
  const bool is_dying = failure_of(event.local_rank) != nullptr || exiting_when_told_.count(event.local_rank) != 0;
  if (worker.exited || worker.told || is_dying || !worker.stays || event.round != assigned_round_) return;  // late
  worker.quiet = true;
  if (phase_ == Phase::Revoking) await_quiet();
}

// Returns those of these workers that were not told to end, each by itself, since they cannot stay.
std::vector<int> AgentCore::not_told(std::vector<int> local_ranks) const {
  std::erase_if(local_ranks, [this](int local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    return index < workers_.size() && workers_[index].told;
  });
  return local_ranks;
}

// Whether some worker can go on in another round. Those of a round that is only starting have not said so.
bool AgentCore::may_revoke() const {
  return phase_ == Phase::Running &&
         std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited && w.stays; });
}

void AgentCore::revoke() {
  phase_ = Phase::Revoking;
  state_.phase = WorkersPhase::Stopping;
  deadline_ = now_ + config_.shutdown_timeout;
  if (suspended_) act(ResumeWorkers{});
  act(RevokeRound{});
  for (const int local_rank : exiting_when_told_) {  // it was quiet, and the next round needs another in its place
    workers_.at(static_cast<std::size_t>(local_rank)).quiet = false;
  }
  std::string ended;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.exited || worker.stays || failure_of(static_cast<int>(i)) != nullptr) continue;
    worker.told = true;
    ended += (ended.empty() ? "" : ", ") + std::to_string(assignment_.base_rank + static_cast<int>(i));
    act(EndWorker{static_cast<int>(i)});
  }
  if (!ended.empty())
    act(LogLine{"cannot stay, and is restarted: rank " + ended + " (it is not in ddp::run or ddprun.attempts())"});
  await_quiet();
}

// Goes on once each worker is reaped or quiet.
void AgentCore::await_quiet() {
  const bool all_are =
      std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.exited || w.quiet; });
  if (!all_are) return;
  if (!workers_live()) return await_leftovers();
  if (awaits_words()) return;  // they explain the round's end
  phase_ = Phase::Quiet;
  deadline_.reset();
  workers_exiting_.clear();
  exiting_when_told_.clear();
  state_.phase = WorkersPhase::Quiet;
  report();
  if (next_) run(*std::exchange(next_, std::nullopt));
}

// Asks for the words of workers that have died since. Returns whether any are still to come.
bool AgentCore::awaits_words() {
  ReadWords read;
  bool any_asked = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.exited && worker.words == Worker::Words::Unread && failure_of(static_cast<int>(i)) != nullptr) {
      worker.words = Worker::Words::Asked;
      read.local_ranks.push_back(static_cast<int>(i));
    }
    any_asked = any_asked || worker.words == Worker::Words::Asked;
  }
  if (!read.local_ranks.empty()) act(std::move(read));
  return any_asked;
}

void AgentCore::on(const WordsRead& event) {
  for (std::size_t i = 0; i < event.local_ranks.size(); ++i) {
    const auto index = static_cast<std::size_t>(event.local_ranks[i]);
    if (index >= workers_.size() || workers_[index].words != Worker::Words::Asked) continue;  // late
    workers_[index].words = Worker::Words::Read;
    if (WorkerFailure* const failure = failure_of(event.local_ranks[i])) take_words(*failure, event.words.at(i));
  }
  keep_within_link(state_.failures);
  if (phase_ == Phase::Revoking) return await_quiet();
  if (phase_ == Phase::Quiet && !awaits_words()) report();
}

void AgentCore::take_words(WorkerFailure& failure, const WorkerWords& words) const {
  if (failure.message.empty()) failure.message = words.message;
  failure.stderr_tail = words.stderr_tail;
  failure.error_record = words.error_record;
  failure.stderr_log = words.stderr_log;
  failure.flight_recorder = words.flight_recorder;
  // The worker may have taken its time to end, so that the death of another one was noticed first.
  if (words.failed_by) failure.time = std::min(failure.time, *words.failed_by);
  if (failure.stopped_by_ddprun) return;
  std::vector<int> ended_before;
  for (const int other : workers_.at(static_cast<std::size_t>(failure.local_rank)).ended_before) {
    const bool is_success = workers_.at(static_cast<std::size_t>(other)).success;
    if (is_success) ended_before.push_back(assignment_.base_rank + other);
  }
  failure.hint = hint_for(failure, {config_.python, words.log_error, words.gpu_fault, words.has_stdin, ended_before});
}

// Kills workers that have not become quiet in time.
void AgentCore::kill_late_survivors() {
  bool any_is_stuck = false;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.exited || worker.quiet) continue;
    any_is_stuck = any_is_stuck || worker.killed;
    if (std::exchange(worker.killed, true)) continue;
    act(LogLine{"rank " + std::to_string(assignment_.base_rank + static_cast<int>(i)) + " did not " +
                (worker.stays ? "leave its groups" : "end") + " within " + in_seconds(config_.shutdown_timeout) +
                " (--shutdown-timeout): killing it"});
    worker.told = true;
    act(KillWorker{static_cast<int>(i)});
  }
  deadline_ = now_ + kUnkillableAfter;
  if (any_is_stuck) kill();
}

void AgentCore::run_with_survivors(const Directive& directive) {
  if (lost_after_.count() > 0 && now_ >= lease_until()) return skip_round(directive, kUnread);
  assignment_ = directive.assignment;
  assigned_round_ = directive.round;
  begin_round(directive.round);
  StartMissing start{assignment_, {}};
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].exited) {
      workers_[i] = {};
      start.local_ranks.push_back(static_cast<int>(i));
    }
    workers_[i].quiet = false;
  }
  const auto stay = workers_.size() - start.local_ranks.size();
  act(LogLine{directive.reason + "; " + std::to_string(stay) + " of " + std::to_string(workers_.size()) +
              " workers of this node stay"});
  phase_ = Phase::Running;
  state_.phase = WorkersPhase::Running;
  workers_started_ = now_;
  told_to_stop_ = false;
  act(std::move(start));
  report();
}

// Lets a round pass that this node must not begin.
void AgentCore::skip_round(const Directive& directive, const char* why) {
  begin_round(directive.round);
  state_.stopped_because = why;
  report();
}

void AgentCore::on(const WorkersStarted& event) {
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

void AgentCore::on(const SpawnFailed& event) {
  WorkerFailure failure;
  failure.rank = assignment_.base_rank;
  failure.host = config_.host;
  failure.status.code = 1;
  failure.message = event.why;
  failure.time = event.time;
  state_.failures.push_back(std::move(failure));
  on(NeverStarted{});
}

void AgentCore::on(const NeverStarted&) {
  note_killed();
  for (Worker& worker : workers_) worker.exited = true;
  become_idle();
}

WorkerFailure* AgentCore::failure_of(int local_rank) {
  const auto found = std::find_if(state_.failures.begin(), state_.failures.end(),
                                  [&](const WorkerFailure& failure) { return failure.local_rank == local_rank; });
  return found == state_.failures.end() ? nullptr : &*found;
}

WorkerFailure AgentCore::failure_at(int local_rank, int pid, rendezvous::WallTime time) const {
  WorkerFailure failure;
  failure.rank = assignment_.base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.host = config_.host;
  failure.pid = pid;
  failure.time = time;
  return failure;
}

WorkerFailure& AgentCore::note_failure(int local_rank, rendezvous::WallTime time, const std::vector<int>& exiting) {
  if (WorkerFailure* known = failure_of(local_rank)) return *known;
  const bool first = state_.failures.empty();
  WorkerFailure failure = failure_at(local_rank, workers_.at(static_cast<std::size_t>(local_rank)).pid, time);
  // Whose doing it is. In a round that is being stopped a death is ddprun's doing, unless the worker was exiting
  // before.
  const bool was_told = told_to_stop_ || workers_[static_cast<std::size_t>(local_rank)].told;
  failure.already_exiting = (first && !was_told) || workers_exiting_.count(local_rank) != 0;
  const bool by_itself = failure.already_exiting || exiting_when_told_.count(local_rank) != 0;
  failure.stopped_by_ddprun = was_told && !by_itself;
  if (first && !told_to_stop_) {
    const std::vector<int> others = not_told(exiting);
    workers_exiting_.insert(others.begin(), others.end());
  }
  state_.failures.push_back(std::move(failure));
  std::vector<int>& ended_before = workers_[static_cast<std::size_t>(local_rank)].ended_before;
  ended_before = exiting;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].success) ended_before.push_back(static_cast<int>(i));
  }
  return state_.failures.back();
}

void AgentCore::set_status(WorkerFailure& failure, const rendezvous::ExitStatus& status) const {
  failure.status = status;
  const bool is_shells = status.code == rendezvous::kCannotExecute || status.code == rendezvous::kNotFound;
  failure.never_ran = is_shells && !failure.stopped_by_ddprun && now_ - workers_started_ <= kFirstSecond;
}

void AgentCore::on(const WorkerDying& event) {
  // In other phases the worker's end is awaited anyway, and WorkerExited decides whose doing it is.
  const bool has_waited = phase_ == Phase::Quiet && workers_.at(static_cast<std::size_t>(event.local_rank)).quiet;
  if ((phase_ != Phase::Running && !has_waited) || failure_of(event.local_rank) != nullptr) return;
  WorkerFailure& failure = note_failure(event.local_rank, event.time, event.exiting);
  workers_[static_cast<std::size_t>(event.local_rank)].quiet = false;  // it does not wait any more: it is reaped first
  set_status(failure, event.status);
  failure.message = event.message;
  if (has_waited) {  // the next round is to fill its place
    phase_ = Phase::Revoking;
    state_.phase = WorkersPhase::Stopping;
    deadline_ = now_ + config_.shutdown_timeout;
  }
  report();  // the coordinator decides for all nodes at once
}

void AgentCore::on(const WorkerExited& event) {
  Worker& worker = workers_.at(static_cast<std::size_t>(event.local_rank));
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
int AgentCore::restarts_used() const { return has_window() ? budget_.used(now_) : assignment_.restart_count; }

void AgentCore::begin_budget(const Directive& run) {
  budget_ = rendezvous::RestartBudget(config_.job);
  const int used = config_.job.max_restarts - run.restarts_left.value_or(config_.job.max_restarts);
  for (int i = 0; i < used; ++i) budget_.spend(now_);
}

void AgentCore::on(const MissingStarted& event) {
  workers_.at(static_cast<std::size_t>(event.local_rank)).pid = event.pid;
  if (phase_ != Phase::Running) return act(KillWorker{event.local_rank});  // what came meanwhile did not reach it
  if (suspended_) act(SuspendWorkers{});
}

void AgentCore::on(const MissingNeverStarted& event) {
  WorkerExited exited;
  exited.local_rank = event.local_rank;
  exited.status.code = 1;
  exited.message = "no process could be started in its place: " + event.why;
  on(exited);
}

// The workers have exited. What they left has the rest of its time, unless it was killed with them.
void AgentCore::await_leftovers() {
  if (phase_ == Phase::Killing) {
    phase_ = Phase::Clearing;
    deadline_ = now_ + kUnkillableAfter;
  } else {
    phase_ = Phase::Lingering;
    deadline_ = std::max_element(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) {
                  return a.leftovers_until < b.leftovers_until;
                })->leftovers_until;
  }
  act(ClearDescendants{});
}

milliseconds AgentCore::leftover_grace() const {
  return std::min<milliseconds>(kLeftoverGrace, config_.shutdown_timeout);
}

void AgentCore::kill_leftovers() {
  for (Worker& worker : workers_) {
    if (!may_kill() || !worker.leftovers_until || now_ < *worker.leftovers_until) continue;
    worker.leftovers_until.reset();
    act(KillLeftovers{static_cast<int>(&worker - workers_.data()), worker.leftover_grace});
  }
}

void AgentCore::on(const AllGone& event) {
  if (phase_ != Phase::Clearing && phase_ != Phase::Lingering) return;  // this node had given up on them
  for (WorkerFailure& failure : state_.failures) {
    const auto index = static_cast<std::size_t>(failure.local_rank);
    if (index >= event.words.size()) continue;
    take_words(failure, event.words[index]);
  }
  keep_within_link(state_.failures);
  become_idle();
}

void AgentCore::become_idle() {
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

// ---- The end ----

void AgentCore::on(const StopSignal& event) {
  if (state_.stop_signal == 0) {
    users_signal_ = state_.stop_signal = event.signal;
    asked_to_stop_ = now_;
    // A coordinator that ends with this agent has to inform the other nodes, so there is no deadline for it.
    if (!takes_coordinator_along()) {
      if (!linked_) return decide_alone();
      decision_until_ = now_ + kDecisionWithin;
    }
    return report();
  }
  if (event.signal != SIGINT && now_ - asked_to_stop_ < kSameRequest) return;
  if (may_kill()) {
    act(LogLine{"second signal: killing the workers"});
    kill();
  }
  state_.stop_signal = SIGKILL;
  report();
  if (!takes_coordinator_along()) decide_alone();
}

void AgentCore::decide_alone() {
  decision_until_.reset();
  const int signal = users_signal_;
  if (may_stop()) stop(signal);
  end({.why = Why::StopSignal, .signal = signal}, rendezvous::signal_name(signal) + " received");
}

// Tells a user whose signal does not end the job at once how long it may take.
void AgentCore::tell_waiting() {
  if (!tell_waiting_at_ || now_ < *tell_waiting_at_) return;
  tell_waiting_at_.reset();
  if (phase_ != Phase::Stopping && phase_ != Phase::Lingering) return;
  const auto live = std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
  const std::string awaited = live == 0   ? "processes that the workers left"
                              : live == 1 ? "1 worker"
                                          : std::to_string(live) + " workers";
  const std::string again = rendezvous::signal_name(users_signal_) + (users_signal_ == SIGINT ? " (Ctrl-C)" : "");
  act(LogLine{.text = "waiting for " + awaited + " to end, for another " +
                      in_seconds(std::chrono::ceil<std::chrono::seconds>(*deadline_ - now_)) +
                      " at most (--shutdown-timeout); another " + again + " kills them at once",
              .is_of_job = true});
}

void AgentCore::on(const HangFound& event) {
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

// Suspends running workers only. Those that are being stopped would spend their grace period asleep.
void AgentCore::on(const Suspend&) {
  suspended_ = true;
  if (phase_ == Phase::Running) act(SuspendWorkers{});
}

// Resumes the workers even if ddprun has not suspended them: a worker may have stopped itself.
void AgentCore::on(const Resume&) {
  suspended_ = false;
  if (phase_ == Phase::Running) act(ResumeWorkers{});
}

void AgentCore::on(const GuardianGone&) {
  const std::string reason = "ddprun was killed";
  if (may_kill()) kill_because(reason);
  state_.stopped_because = reason;
  end({.why = Why::Failed, .signal = SIGKILL}, reason);
}

// To the others this node is lost, and does not end their job: the head may start another agent in its place. That one
// waits until this one has left, which it does once its workers have ended.
void AgentCore::on(const HeadGone&) {
  const std::string reason = "its connection to the head has ended";
  if (phase_ != Phase::Idle && !exit_) {
    state_.stopped_because = reason;
    report();
  }
  end({.why = Why::NodeLost}, reason);
}

// Ends this agent whatever the coordinator says, its workers first.
void AgentCore::end(const rendezvous::Outcome& outcome, std::string reason) {
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
  if (phase_ == Phase::Idle) return leave(exit);
  if (!exit_) exit_ = exit;
  if (may_stop()) stop(SIGTERM);
}

// Stacks cost the next round time, so they are taken only if there is none, or if they are what explains the failure.
StacksUse AgentCore::stacks_before(const Directive& stop) const {
  if (!config_.takes_stacks || !stop.cause) return StacksUse::NotTaken;
  if (restarts_used() >= config_.job.max_restarts) return StacksUse::Reported;
  const bool is_needed = is_timeout(stop.cause->message) && !config_.keeps_memory;
  return is_needed ? StacksUse::Logged : StacksUse::NotTaken;
}

void AgentCore::stop(int signal, StacksUse stacks) {
  phase_ = Phase::Stopping;
  stop_signal_ = signal;
  told_to_stop_ = true;
  state_.phase = WorkersPhase::Stopping;
  deadline_ = now_ + config_.shutdown_timeout;
  if (users_signal_ != 0) tell_waiting_at_ = now_ + kFirstWaitingLine;
  if (suspended_) act(ResumeWorkers{});  // a stopped process handles no signal
  act(SignalWorkers{signal, stacks});
}

void AgentCore::kill() {
  phase_ = workers_live() ? Phase::Killing : Phase::Clearing;
  told_to_stop_ = true;
  state_.phase = WorkersPhase::Stopping;  // they may have been quiet
  deadline_ = now_ + kUnkillableAfter;
  tell_waiting_at_.reset();
  act(KillDescendants{});
}

// Kills the workers and reports it at once, since their peers are about to fail because of it.
void AgentCore::kill_because(const std::string& reason) {
  act(LogLine{"killing the workers of this node: " + reason});
  if (workers_live()) {
    if (state_.hang == rendezvous::Hang::None) state_.stopped_because = reason;  // else the hang came first
    state_.phase = WorkersPhase::Stopping;
    report();  // before the kill, which ends workers that are not started yet and causes another report
  }
  kill();
}

void AgentCore::on(const Tick&) {
  if (deadline_ && now_ >= *deadline_) escalate();
  kill_leftovers();
  if (decision_until_ && now_ >= *decision_until_) decide_alone();
  tell_waiting();
  watch_lease();
  if (!is_coordinators() && phase_ != Phase::Left) watch_link();
}

void AgentCore::escalate() {
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
    case Phase::Clearing:
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

void AgentCore::leave(Directive directive) {
  phase_ = Phase::Left;
  deadline_.reset();
  decision_until_.reset();
  state_.left = true;
  report();
  const Why why = state_.unkillable.empty() ? Why::None : Why::Unkillable;
  const int code = exit_code({.why = why, .first = {.code = directive.exit_code}});
  act(Leave{code, std::move(directive), state_.unkillable, ends_alone_});
}

// Returns whether there may be processes of the round that were not killed yet.
bool AgentCore::may_kill() const {
  const bool may_linger = phase_ == Phase::Lingering;
  return may_stop() || phase_ == Phase::Stopping || may_linger;
}

// Returns whether there may be workers that were not told to end yet.
bool AgentCore::may_stop() const {
  const bool may_survive = phase_ == Phase::Revoking || phase_ == Phase::Quiet;
  return phase_ == Phase::Starting || phase_ == Phase::Running || may_survive;
}

bool AgentCore::workers_live() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited; });
}

}  // namespace ddp::launcher
