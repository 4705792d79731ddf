// SPDX-License-Identifier: BSD-3-Clause
// Decides about the workers of one node: when they start, when and how hard they are stopped, what becomes of the
// processes that they leave, what is reported of their ends, and when the agent has no more of them and may leave.
//
//     Idle ──Run──▶ Starting ──▶ Running ──Stop──▶ Stopping ──grace over──▶ Killing
//                                   └──────┬─all exited─────┘                  │
//                                          ▼                                   │
//                                      Lingering ──────grace over──────────────┤ (all exited)
//                                          └──AllGone──▶ Idle ◀──AllGone───────┘
//     Idle ──Exit──▶ Left; in any other phase Exit stops the workers first
//
//     Running ──Stop, survivors stay──▶ Revoking ──all that live are quiet──▶ Quiet ──Run──▶ Running
//
// Survivors (--on-failure replace or shrink): a worker that can stay (WorkerStays) outlives its round. It
// leaves the round's groups, says that it is quiet, and goes on in the next round, in which new processes take the
// places of dead workers. The order is the same on all nodes: revoke, wait until all are quiet, go. A worker that does
// not become quiet within shutdown_timeout is killed; a worker that cannot stay gets SIGTERM. Ranks and the world's
// size may differ from round to round. Quiet is reported once it is known what the dead workers have written.
//
// Lingering: processes that the workers left were asked to end. If the worker was told to end, what it left has the
// rest of its grace; if the worker ended by itself, what it left has kLeftoverGrace. Then these processes are killed,
// even if other workers still run.
//
// Invariants: workers run only in the newest round that a directive has named; Idle is reported only when every process
// of the round, descendants included, is reaped or was found to be unkillable, and Quiet only when each worker is
// reaped or quiet; a worker that dies after this node asked it to end is never reported as a cause.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/agent/agent_events.hpp"
#include "launcher/agent/link_core.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/link/restart_budget.hpp"

namespace ddp::launcher {

// Time from SIGKILL until a process counts as unkillable (stuck in the kernel).
inline constexpr std::chrono::seconds kUnkillableAfter{10};
// Time for what a worker leaves when it ends by itself, from SIGTERM to SIGKILL; less if shutdown_timeout is less.
inline constexpr std::chrono::seconds kLeftoverGrace{5};
// A worker that exits with 126 or 127 within this time of its start never ran: these are the codes of a program, or of
// a shared library, that is missing or cannot be executed.
inline constexpr std::chrono::seconds kFirstSecond{1};

class WorkersCore {
 public:
  enum class Phase { Idle, Starting, Running, Stopping, Lingering, Killing, Left, Revoking, Quiet };

  // `link` says whether a report can be sent, and whether a round may begin.
  WorkersCore(AgentContext& agent, const LinkCore& link) : agent_(agent), link_(link) {}

  Phase phase() const { return phase_; }
  // Returns the newest round that a directive has named, begun or not.
  int newest_round() const { return next_ ? next_->round : state_.round; }
  // Returns whether the agent leaves once the workers have ended.
  bool is_leaving() const { return exit_.has_value(); }
  // Returns whether there may be processes of the round that were not killed yet.
  bool may_kill() const;
  // Returns whether there may be workers that were not told to end yet.
  bool may_stop() const;

  void on(const WorkersStarted& event);
  void on(const NeverStarted& event);
  void on(const WorkerDying& event);
  void on(const WorkerExited& event);
  void on(const MissingStarted& event);
  void on(const WorkerStays& event);
  void on(const WorkerQuiet& event);
  void on(const WordsRead& event);
  void on(const AllGone& event);
  void on(const HangFound& event);
  void on(const Suspend& event);

  // Obey a directive, which is not about an older round.
  void run(const rendezvous::Directive& directive);
  void on_stop(const DirectiveArrived& event);
  void on_exit(rendezvous::Directive exit);

  // Ends this agent whatever the coordinator says, its workers first.
  void end(const rendezvous::Outcome& outcome, std::string reason);
  void stop(int signal, StacksUse stacks = StacksUse::NotTaken);
  void kill();
  // Kills the workers and reports it at once, since their peers are about to fail because of it.
  void kill_because(const std::string& reason);
  // The keeper has killed the workers, since the agent did not run for this time. None of their deaths is handled yet.
  void note_keeper(std::chrono::nanoseconds not_run);

  // Does what is due; wake_at() is when something is.
  void watch();
  std::optional<TimePoint> wake_at() const;
  // This process was stopped for this time, which does not count against the grace of anything that is to end.
  void forgive_sleep(std::chrono::nanoseconds slept);
  void report() {
    if (link_.is_up()) act(SendReport{state_});  // else on the next LinkUp
  }

 private:
  struct Worker {
    int pid = 0;
    bool exited = false;
    bool success = false;
    bool stays = false;                                              // it has said that it can go on in another round
    bool quiet = false;                                              // it has left its round's groups
    bool told = false;                                               // it alone was told to end
    bool killed = false;                                             // it alone was killed
    enum class Words { Unread, Asked, Read } words = Words::Unread;  // that it has left
    std::vector<int> ended_before{};  // local ranks that had exited with 0, or were about to exit, when it failed
    std::optional<TimePoint> leftovers_until = {};  // when what it left is killed, if that is to come
    std::chrono::milliseconds leftover_grace{0};    // the time that it has until then
  };

  void begin_round(int round);
  void run_with_survivors(const rendezvous::Directive& directive);
  void skip_round(const rendezvous::Directive& directive, const char* why);
  rendezvous::WorkerFailure* failure_of(int local_rank);
  rendezvous::WorkerFailure failure_at(int local_rank, int pid, rendezvous::WallTime time) const;
  rendezvous::WorkerFailure& note_failure(int local_rank, rendezvous::WallTime time, const std::vector<int>& exiting);
  void set_status(rendezvous::WorkerFailure& failure, const rendezvous::ExitStatus& status) const;
  bool has_window() const { return config_.job.restart_window.count() > 0; }
  int restarts_used() const;
  void begin_budget(const rendezvous::Directive& run);
  std::vector<int> not_told(std::vector<int> local_ranks) const;
  bool may_revoke() const;
  void revoke();
  void await_quiet();
  bool awaits_words();
  void take_words(rendezvous::WorkerFailure& failure, const WorkerWords& words);
  void kill_late_survivors();
  void await_leftovers();
  void kill_leftovers();
  std::chrono::milliseconds leftover_grace() const;
  void become_idle();
  StacksUse stacks_before(const rendezvous::Directive& stop) const;
  void note_killed();
  void escalate();
  void tell_waiting();
  void leave_once_idle(rendezvous::Directive exit);
  void leave(rendezvous::Directive directive);
  bool workers_live() const;
  Worker& worker_at(int local_rank) { return workers_.at(static_cast<std::size_t>(local_rank)); }
  int local_rank_of(const Worker& worker) const { return static_cast<int>(&worker - workers_.data()); }
  void act(AgentAction action) { agent_.act(std::move(action)); }

  AgentContext& agent_;
  const LinkCore& link_;
  const AgentConfig& config_ = agent_.config;
  rendezvous::AgentState& state_ = agent_.state;
  const TimePoint& now_ = agent_.now;

  Phase phase_ = Phase::Idle;
  rendezvous::Assignment assignment_;
  int assigned_round_ = 0;                     // the newest round whose workers this node was to run
  std::vector<Worker> workers_;                // by local rank
  TimePoint workers_started_;                  // when the newest round's workers began to run
  rendezvous::RestartBudget budget_;           // with a window: of this node, if it is the only one
  std::set<int> workers_exiting_;              // local ranks that were exiting at the first failure
  std::set<int> exiting_when_told_;            // local ranks that were exiting when the stop came
  std::string killed_by_keeper_;               // why the keeper has killed the workers; empty: it has not
  bool told_to_stop_ = false;                  // the workers of this round were asked to end
  std::optional<rendezvous::Directive> next_;  // the round to run once idle
  std::optional<rendezvous::Directive> exit_;  // the directive to leave with once idle
  bool ends_alone_ = false;                    // as Leave::is_own
  int stop_signal_ = 0;                        // what the stop that is under way sent
  std::optional<TimePoint> deadline_;          // ends the stop, kill or clearing that is under way
  std::optional<TimePoint> tell_waiting_at_;   // when the user learns how long the stop may take
  bool suspended_ = false;                     // by the user; the link goes on, so that the node is not lost
};

}  // namespace ddp::launcher
