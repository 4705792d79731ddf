// SPDX-License-Identifier: BSD-3-Clause
// WorkersCore's part about workers that stay when others of their round fail, see workers_core.hpp.
#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/agent/workers_core.hpp"
#include "rendezvous/link/failures.hpp"

namespace ddp::launcher {

using rendezvous::Directive;
using rendezvous::WorkerFailure;
using rendezvous::WorkersPhase;

void WorkersCore::on(const WorkerStays& event) {
  const bool stayed = std::exchange(worker_at(event.local_rank).stays, event.stays);
  if (!stayed || event.stays || std::exchange(state_.is_ending, true)) return;
  report();  // it is done with all that others need it for
}

// One may be quiet before this node learns that the round has failed, since the store tells the workers, too.
void WorkersCore::on(const WorkerQuiet& event) {
  Worker& worker = worker_at(event.local_rank);
  const bool is_dying = failure_of(event.local_rank) != nullptr || exiting_when_told_.count(event.local_rank) != 0;
  if (worker.exited || worker.told || is_dying || !worker.stays || event.round != assigned_round_) return;  // late
  worker.quiet = true;
  if (phase_ == Phase::Revoking) await_quiet();
}

// Whether some worker can go on in another round. Those of a round that is only starting have not said so.
bool WorkersCore::may_revoke() const {
  return phase_ == Phase::Running &&
         std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return !w.exited && w.stays; });
}

void WorkersCore::revoke() {
  phase_ = Phase::Revoking;
  state_.phase = WorkersPhase::Stopping;
  deadline_ = now_ + config_.shutdown_timeout;
  if (suspended_) act(SuspendWorkers{.is_over = true});
  act(RevokeRound{});
  // One that was quiet and is exiting needs another process in its place.
  for (const int local_rank : exiting_when_told_) worker_at(local_rank).quiet = false;
  std::string ended;
  for (Worker& worker : workers_) {
    if (worker.exited || worker.stays || failure_of(local_rank_of(worker)) != nullptr) continue;
    worker.told = true;
    ended += (ended.empty() ? "" : ", ") + std::to_string(assignment_.base_rank + local_rank_of(worker));
    act(SignalWorker{local_rank_of(worker), SIGTERM});
  }
  if (!ended.empty())
    act(LogLine{"cannot stay, and is restarted: rank " + ended + " (it is not in ddp::run or ddprun.attempts())"});
  await_quiet();
}

// Goes on once each worker is reaped or quiet.
void WorkersCore::await_quiet() {
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
bool WorkersCore::awaits_words() {
  ReadWords read;
  bool any_asked = false;
  for (Worker& worker : workers_) {
    if (worker.exited && worker.words == Worker::Words::Unread && failure_of(local_rank_of(worker)) != nullptr) {
      worker.words = Worker::Words::Asked;
      read.local_ranks.push_back(local_rank_of(worker));
    }
    any_asked = any_asked || worker.words == Worker::Words::Asked;
  }
  if (!read.local_ranks.empty()) act(std::move(read));
  return any_asked;
}

void WorkersCore::on(const WordsRead& event) {
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

// Kills workers that have not become quiet in time.
void WorkersCore::kill_late_survivors() {
  bool any_is_stuck = false;
  for (Worker& worker : workers_) {
    if (worker.exited || worker.quiet) continue;
    any_is_stuck = any_is_stuck || worker.killed;
    if (std::exchange(worker.killed, true)) continue;
    act(LogLine{"rank " + std::to_string(assignment_.base_rank + local_rank_of(worker)) + " did not " +
                (worker.stays ? "leave its groups" : "end") + " within " + in_seconds(config_.shutdown_timeout) +
                " (--shutdown-timeout): killing it"});
    worker.told = true;
    act(SignalWorker{local_rank_of(worker), SIGKILL});
  }
  deadline_ = now_ + kUnkillableAfter;
  if (any_is_stuck) kill();
}

void WorkersCore::run_with_survivors(const Directive& directive) {
  assignment_ = directive.assignment;
  assigned_round_ = directive.round;
  begin_round(directive.round);
  StartMissing start{assignment_, {}};
  for (Worker& worker : workers_) {
    if (worker.exited) {
      worker = {};
      start.local_ranks.push_back(local_rank_of(worker));
    }
    worker.quiet = false;
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

}  // namespace ddp::launcher
