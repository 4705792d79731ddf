// SPDX-License-Identifier: BSD-3-Clause
// Decides for one node: when to start its workers, when and how hard to stop them, what to report, when to leave.
// It maps (now, event) to actions and holds no process, socket, clock or log. Its driver is agent.hpp.
//
//     Idle ──Run──▶ Running ──Stop / signal──▶ Stopping ──grace over──▶ Killing
//                      └──────┬─all exited────────┘                        │ all exited
//                             ▼                                            ▼
//                         Lingering ──────────────grace over──────────▶ Clearing ──AllGone──▶ Idle
//                             └──────────────────────AllGone──────────────────────────────────▲
//     Idle ──Exit──▶ Leave; in any other phase Exit stops the workers first
//
//     Running ──Stop, survivors stay──▶ Revoking ──all that live are quiet──▶ Quiet ──Run──▶ Running
//
// Survivors (--on-failure replace or shrink): a worker that has said that it can stay does not end with its round. It
// leaves the round's groups, says that it is quiet, and goes on in the next round, in which new processes take the
// other places. The order is the same on all nodes: revoke, wait until all are quiet, go. A worker that does not become
// quiet within shutdown_timeout is killed; one that cannot stay gets SIGTERM. In the place of each worker that
// ends meanwhile a new one is started. Ranks and the world's size may be others in each round. Quiet is reported once
// it is known what the dead workers have written.
//
// Lingering: processes that the workers left were asked to end. Those of a worker that was told to end have the rest of
// its grace, those of one that ended by itself have kLeftoverGrace; a worker's leftovers are killed then even if other
// workers still run.
//
// Invariants: workers run only in the newest round that a directive has named; Idle is reported only when every process
// of the round, descendants included, is reaped or was found to be unkillable, and Quiet only when each worker is
// reaped or quiet; a worker that dies after this node asked it to end is never reported as a cause.
//
// The lease: the coordinator counts a node as lost after lost_after of silence (its Directives carry the value), or
// when a link that broke does not come back in time (back_within); then the job goes on without the node. No worker
// of this node may be left by then, so they are killed after two thirds of either time. It is counted from when this
// node sent the newest message that the coordinator has answered, since the coordinator heard from it then or later.
// After all of lost_after this agent leaves. A node that was told to leave has no lease: no later round knows it, its
// workers have their grace, and the coordinator may end before them.
//
// Where each coordinator of the job has an epoch of its own, one may take the place of another while that one is
// stopped or cut off, and does not know yet. The epoch is the fence: an agent obeys the newest that it has met, and
// drops a link over which an older one speaks. What that one says counts for nothing, not even as a sign of life.
//
// An agent that does not run (it is stopped, hangs, or its machine sleeps) cannot kill them. Its keeper does so in its
// place at the time that the newest SetDeadman named, a moment after the end of the lease. The coordinator's own agent
// has its lease from its own loop: the others lose the coordinator with it.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/local/link_delay.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/link/restart_budget.hpp"

namespace ddp::launcher {

using rendezvous::TimePoint;

struct AgentConfig {
  rendezvous::JobShape job;
  std::string incarnation;
  std::string host;
  std::vector<std::string> addresses = {};  // this node's, numeric
  int node_rank = 0;
  int wanted_rank = -1;
  std::string role = "default";
  int workers = 1;
  std::string python = {};       // the interpreter that runs the workers; empty: none
  std::string coordinator = {};  // its endpoint, for messages: `10.0.0.1:29500`; empty: it is in this process
  std::string advice = {};       // to the user, where the coordinator is not found
  // The coordinator is in a process beside this agent, and ends with it.
  bool is_beside_coordinator = false;
  std::string endpoint_host = {};                                      // as in AgentState
  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  // until the coordinator is found
  // With etcd it takes at least this time from when etcd names a node. That node may be of a job that was killed, and
  // is named until its lease ends; or it waits itself, to see whether a node of that job lives.
  std::chrono::milliseconds named_timeout{0};
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);  // from the stop signal to SIGKILL
  bool takes_stacks = false;                                              // before workers are stopped
  bool keeps_memory = false;                                              // --keep-memory
  OnHang on_hang = OnHang::Tell;
};

// Time from SIGKILL until a process counts as unkillable (stuck in the kernel).
inline constexpr std::chrono::seconds kUnkillableAfter{10};
// Time for what a worker leaves when it ends by itself, from SIGTERM to SIGKILL; less if shutdown_timeout is less.
inline constexpr std::chrono::seconds kLeftoverGrace{5};
// A worker that exits with 126 or 127 within this time of its start never ran: these are the codes of a program, or of
// a shared library, that is missing or cannot be executed.
inline constexpr std::chrono::seconds kFirstSecond{1};
// Time for the coordinator to answer a stop signal; after it this node acts alone.
inline constexpr std::chrono::seconds kDecisionWithin{2};
// From the end of the lease, when this agent kills the workers, until its keeper does because the agent does not run.
inline constexpr std::chrono::milliseconds kKeeperWaits{250};
// A stop signal this soon after the first one is the same request, unless it is SIGINT: at a time limit Slurm sends
// SIGTERM twice within milliseconds, and a shell repeats the SIGHUP of its terminal.
inline constexpr std::chrono::seconds kSameRequest{2};

// ---- events ----
struct LinkUp {
  std::string coordinator_address = {};  // as in AgentState
  bool is_beside = false;                // AgentConfig::is_beside_coordinator, where that changes from link to link
};
struct LinkDown {  // the link broke; the driver connects again
  std::string why;
};
struct LinkFailed {  // an attempt to connect failed; the driver goes on trying
  std::string why;
  bool is_etcds = false;  // etcd, which says where to connect, is in trouble; `why` is empty once it is no more
};
struct LinkRefused {  // the coordinator refuses this node for good
  std::string why;
};
struct CoordinatorNamed {};  // etcd names a node that coordinates, and named none or another one before
struct BeatArrived {};
struct DirectiveArrived {
  rendezvous::Directive directive;
  std::vector<int> exiting = {};  // Stop: local ranks of workers that are already exiting
};
struct WorkersStarted {  // all workers exist, and the gate is open
  std::vector<int> pids;
};
struct SpawnFailed {  // no worker runs
  std::string why;
  rendezvous::WallTime time = {};
};
struct NeverStarted {};  // no worker runs, since a stop came before the start
struct WorkerDying {     // a worker is certain to end like this; WorkerExited follows once its memory is freed
  int local_rank = 0;
  rendezvous::ExitStatus status;  // never a success: of those only WorkerExited comes
  rendezvous::WallTime time;
  std::vector<int> exiting;  // as in WorkerExited
  std::string message = {};  // that it timed out, from its error file; else empty
};
struct WorkerExited {
  int local_rank = 0;
  rendezvous::ExitStatus status;
  rendezvous::WallTime time;
  // Why its program could not be executed, which timer ended it, or that it timed out, from its error file; else empty.
  std::string message;
  std::vector<int> exiting;        // local ranks of other workers that are already exiting
  std::string out_of_memory = {};  // the evidence that it was killed for lack of memory; else empty
};
// Answers to StartMissing: one of them for each place.
struct MissingStarted {
  int local_rank = 0;
  int pid = 0;
};
struct MissingNeverStarted {
  int local_rank = 0;
  std::string why;
};
// What workers say about survival. It stays as long as it has not said otherwise.
struct WorkerStays {
  int local_rank = 0;
  bool stays = false;
};
struct WorkerQuiet {  // it has left the groups of this round, and waits for the next
  int local_rank = 0;
  int round = 0;
};
struct WorkerWords {  // what a dead worker left, known once its streams are drained
  std::string message = {};
  std::vector<std::string> stderr_tail = {};
  std::string error_record = {};
  std::string stderr_log = {};       // the file that has all of its stderr; empty: none
  std::string flight_recorder = {};  // libddp's file; empty: none
  std::string log_error = {};        // why its last lines may be missing in files that it wrote itself; else empty
  std::string gpu_fault = {};        // what has happened to the memory of its GPU; else empty
  std::optional<rendezvous::WallTime> failed_by = {};  // from its error file; nothing: not known
  bool has_stdin = true;                               // false: its stdin is empty, and the user has not asked for that
};
struct WordsRead {  // answer to ReadWords
  std::vector<int> local_ranks;
  std::vector<WorkerWords> words;  // in that order
};
struct AllGone {                   // answer to ClearDescendants: no process is left, the workers' leftovers included
  std::vector<WorkerWords> words;  // by local rank
};
struct StopSignal {  // the user asks the job to end; a second one asks for it at once (see kSameRequest)
  int signal = 0;
};
struct HangFound {  // the workers make no progress
  std::string why;
};
struct Suspend {};  // Ctrl-Z on the user's terminal
struct Resume {};
struct GuardianGone {};
struct HeadGone {};  // what has started this node by --hosts is out of reach; another agent may take its place
struct Tick {};
using AgentEvent = std::variant<LinkUp, LinkDown, LinkFailed, LinkRefused, BeatArrived, DirectiveArrived,
                                WorkersStarted, SpawnFailed, NeverStarted, WorkerDying, WorkerExited, MissingStarted,
                                MissingNeverStarted, WorkerStays, WorkerQuiet, AllGone, StopSignal, Suspend, Resume,
                                GuardianGone, HeadGone, Tick, HangFound, WordsRead, CoordinatorNamed>;

// ---- actions ----
struct StartWorkers {
  rendezvous::Assignment assignment;
};
// The round begins with the workers that have stayed, and a new process in each of these places. Answered for each by
// MissingStarted or MissingNeverStarted.
struct StartMissing {
  rendezvous::Assignment assignment;
  std::vector<int> local_ranks;
};
struct ReadWords {  // find out what these workers have left, which are reaped while others live; answer WordsRead
  std::vector<int> local_ranks;
};
struct RevokeRound {};  // show the workers that they are to leave the groups of this round
struct EndWorker {      // SIGTERM to one worker and its process group
  int local_rank = 0;
};
struct KillWorker {  // SIGKILL to one worker and what it has started
  int local_rank = 0;
};
// What becomes of the workers' stacks that are taken before they are stopped.
enum class StacksUse { NotTaken, Logged, Reported };
struct SignalWorkers {  // to the process group of each live worker
  int signal = 0;
  StacksUse stacks = StacksUse::NotTaken;
};
struct SuspendWorkers {};  // and all their descendants; the deadline of a stop that is under way still holds
struct ResumeWorkers {};
struct KillDescendants {};  // SIGKILL to every descendant of this agent, now and while AllGone is awaited
struct KillLeftovers {      // SIGKILL to what this worker, which has exited, left
  int local_rank = 0;
  std::chrono::milliseconds grace{0};  // the time that they had since they were asked to end
};
struct ClearDescendants {};  // all workers have exited: await and reap what they left, then answer AllGone
struct SendReport {          // if there is a link
  rendezvous::AgentState state;
};
struct SendHeartbeat {};
struct SetDeadman {  // when the keeper kills all descendants, unless another time is set before; nothing: never
  std::optional<TimePoint> at;
};
struct Reconnect {  // the link is silent: drop it and connect again
  std::string why;
};
struct LogLine {
  std::string text;
  bool is_of_job = false;  // each node says it, in the coordinator's words
};
struct Leave {
  int exit_code = 0;
  rendezvous::Directive directive;  // why
  std::vector<int> unkillable;
  bool is_own = false;  // this node ends alone, so no other node may know why
};
using AgentAction = std::variant<StartWorkers, StartMissing, RevokeRound, EndWorker, KillWorker, SignalWorkers,
                                 SuspendWorkers, ResumeWorkers, KillDescendants, KillLeftovers, ClearDescendants,
                                 SendReport, SendHeartbeat, SetDeadman, Reconnect, LogLine, Leave, ReadWords>;

class AgentCore {
 public:
  enum class Phase { Idle, Starting, Running, Stopping, Lingering, Killing, Clearing, Left, Revoking, Quiet };

  explicit AgentCore(AgentConfig config);

  void step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions);
  // Returns when to send a Tick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;
  Phase phase() const { return phase_; }
  const rendezvous::AgentState& state() const { return state_; }
  // Returns what heartbeats over this link take; nothing for the coordinator's own agent, and before the first one.
  std::optional<LinkDelay> link_delay() const { return round_trips_.delay(); }
  // Returns after which silence the coordinator counts a node as lost, as it says; 0: never.
  std::chrono::milliseconds lost_after() const { return lost_after_; }

 private:
  void on(const LinkUp& event);
  void on(const LinkDown& event);
  void on(const LinkFailed& event);
  void on(const LinkRefused& event);
  void on(const CoordinatorNamed&) { named_ = now_; }
  void on(const BeatArrived& event);
  void on(const DirectiveArrived& event);
  void on(const WorkersStarted& event);
  void on(const SpawnFailed& event);
  void on(const NeverStarted& event);
  void on(const WorkerDying& event);
  void on(const WorkerExited& event);
  void on(const MissingStarted& event);
  void on(const MissingNeverStarted& event);
  void on(const WorkerStays& event);
  void on(const WorkerQuiet& event);
  void on(const AllGone& event);
  void on(const StopSignal& event);
  void on(const HangFound& event);
  void on(const WordsRead& event);
  void on(const Suspend& event);
  void on(const Resume& event);
  void on(const GuardianGone& event);
  void on(const HeadGone& event);
  void on(const Tick& event);

  bool is_fenced_off(const rendezvous::Directive& directive) const;
  void meet_older(const rendezvous::Directive& directive);
  bool is_of_other_job(const rendezvous::Directive& directive) const;
  std::string why_not_believed(const rendezvous::Directive& directive) const;
  void on_stop(const DirectiveArrived& event);
  void on_exit(rendezvous::Directive exit);
  void begin_round(int round);
  void run(const rendezvous::Directive& directive);
  rendezvous::WorkerFailure* failure_of(int local_rank);
  void set_status(rendezvous::WorkerFailure& failure, const rendezvous::ExitStatus& status) const;
  rendezvous::WorkerFailure failure_at(int local_rank, int pid, rendezvous::WallTime time) const;
  rendezvous::WorkerFailure& note_failure(int local_rank, rendezvous::WallTime time, const std::vector<int>& exiting);
  bool has_window() const { return config_.job.restart_window.count() > 0; }
  int restarts_used() const;
  void begin_budget(const rendezvous::Directive& run);
  void skip_round(const rendezvous::Directive& directive, const char* why);
  void run_with_survivors(const rendezvous::Directive& directive);
  void revoke();
  void await_quiet();
  bool awaits_words();
  void take_words(rendezvous::WorkerFailure& failure, const WorkerWords& words) const;
  void kill_late_survivors();
  bool may_stop() const;
  std::vector<int> not_told(std::vector<int> local_ranks) const;
  bool may_revoke() const;
  StacksUse stacks_before(const rendezvous::Directive& stop) const;
  void stop(int signal, StacksUse stacks = StacksUse::NotTaken);
  void kill();
  void kill_because(const std::string& reason);
  void note_killed();
  void await_leftovers();
  void kill_leftovers();
  std::chrono::milliseconds leftover_grace() const;
  void become_idle();
  void end(const rendezvous::Outcome& outcome, std::string reason);
  void leave(rendezvous::Directive directive);
  void escalate();
  void decide_alone();
  void tell_waiting();
  void notice_deadman();
  void set_deadman();
  void watch_lease();
  void watch_link();
  TimePoint joins_until() const;
  bool joined() const { return !state_.epoch.empty(); }
  bool is_coordinators() const { return config_.coordinator.empty(); }
  // Whether the job ends with this agent, since the coordinator does: then that one has to inform the others first.
  bool takes_coordinator_along() const { return is_coordinators() || config_.is_beside_coordinator || is_beside_now_; }
  bool may_kill() const;
  TimePoint lease_until() const;
  std::optional<TimePoint> kill_at() const;
  TimePoint reconnect_at() const;
  void answered();
  void forgive_own_sleep();
  void report() {
    if (linked_) act(SendReport{state_});  // else on the next LinkUp
  }
  template <typename Action>
  void act(Action action) {
    actions_->push_back(std::move(action));
  }
  bool workers_live() const;

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

  AgentConfig config_;
  Phase phase_ = Phase::Idle;
  rendezvous::AgentState state_;
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
  bool is_released_ = false;                   // the coordinator has told this node to leave
  bool ends_alone_ = false;                    // as Leave::is_own
  int stop_signal_ = 0;                        // what the stop that is under way sent
  std::optional<TimePoint> deadline_;          // ends the stop, kill or clearing that is under way
  bool suspended_ = false;                     // by the user; the link goes on, so that the node is not lost
  int users_signal_ = 0;                       // the user's first stop signal
  std::optional<TimePoint> decision_until_;    // when this node acts alone on a stop signal
  std::optional<TimePoint> tell_waiting_at_;   // when the user learns how long the stop may take

  // The link.
  bool linked_ = false;
  std::string why_not_linked_ = "no answer yet";
  std::optional<TimePoint> started_;  // when the first step was taken
  std::optional<TimePoint> named_;    // when etcd named the node that coordinates
  TimePoint heard_;                   // when the coordinator's newest message arrived
  std::optional<TimePoint> asked_;    // when the unanswered message (a new link's report, or a heartbeat) was sent
  TimePoint answered_;                // when the newest message that was answered was sent
  bool is_beside_now_ = false;        // as the newest link said
  bool is_new_link_ = false;          // nothing has arrived over it yet
  std::string etcds_trouble_;
  bool is_older_link_ = false;    // an older coordinator is at its other end
  std::string older_;             // describes the older coordinator that was met since the newest one was heard
  RoundTrips round_trips_;        // what heartbeats over this link took
  std::optional<TimePoint> cut_;  // since when a link that worked is broken, or its successor unanswered
  std::chrono::milliseconds lost_after_{0}, back_within_{rendezvous::kReconnectWindow};
  std::optional<TimePoint> next_beat_, next_waiting_line_;
  std::optional<TimePoint> reconnected_;  // when a silent link was last given up
  std::optional<TimePoint> due_;          // when the next Tick was due, as of the last step
  std::optional<TimePoint> deadman_;      // as set
  TimePoint last_step_;
  TimePoint asked_to_stop_;  // when the first stop signal came
  TimePoint now_;
  std::vector<AgentAction>* actions_ = nullptr;
};

}  // namespace ddp::launcher
