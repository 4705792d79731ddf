// SPDX-License-Identifier: BSD-3-Clause
// Decides for one node: when to start its workers, when and how hard to stop them, what to report, when to leave.
// A value: (now, event) in, actions out; no process, socket, clock or log inside. The driver is agent.hpp.
//
//     Idle ──Run──▶ Running ──Stop / signal──▶ Stopping ──grace over──▶ Killing ──▶ Clearing ──AllGone──▶ Idle
//                      └────────────all exited────────────────────────────────────────▲
//     Exit, once Idle: Leave.
//
// Invariants: workers act only in the newest round this node was told of; Idle is reported only when every process of
// the round, descendants too, is reaped or was found to be unkillable; a worker that dies after this node told it to
// end is never reported as a cause.
//
// The coordinator counts a node as lost after lost_after without a word (its Directives say how long), or when a link
// that broke does not come back within kReconnectWindow; then the job goes on without it. So that no worker of this
// node is left by then, they are killed after two thirds of either, counted from when this node sent the newest word
// that the coordinator has answered: it was heard then or later. After all of lost_after this agent leaves.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

using rendezvous::TimePoint;

struct AgentConfig {
  rendezvous::JobShape job;
  std::string incarnation;
  std::string host;
  std::vector<std::string> addresses = {};  // this node's, numeric
  int node_rank = 0;
  std::string role = "default";
  int workers = 1;
  std::string python = {};       // the interpreter that runs them; empty: none
  std::string coordinator = {};  // where it is looked for, in words: `10.0.0.1:29500`; empty: in this process
  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);     // until the coordinator is found
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);  // stop signal to SIGKILL
};

// From SIGKILL until a process counts as unkillable (stuck in the kernel).
inline constexpr std::chrono::seconds kUnkillableAfter{10};
// The coordinator's answer to a stop signal; then this node acts alone.
inline constexpr std::chrono::seconds kDecisionWithin{2};

// ---- events ----
struct LinkUp {};
struct LinkDown {  // the link broke; the driver is at it to get another one
  std::string why;
};
struct LinkFailed {  // a try to get one
  std::string why;
};
struct LinkRefused {  // for good
  std::string why;
};
struct BeatArrived {};
struct DirectiveArrived {
  rendezvous::Directive directive;
  std::vector<int> exiting = {};  // Stop: local ranks of workers that are already on their way out
};
struct WorkersStarted {  // all of them, and the gate is open
  std::vector<int> pids;
};
struct SpawnFailed {  // not one of them runs
  std::string why;
  rendezvous::WallTime time = {};
};
struct NeverStarted {};  // as SpawnFailed, since it was told to stop meanwhile
struct WorkerDying {     // it will end so; WorkerExited follows once the kernel has taken its memory back
  int local_rank = 0;
  rendezvous::ExitStatus status;  // never a success: those are told when they are there
  rendezvous::WallTime time;
  std::vector<int> exiting;  // as in WorkerExited
};
struct WorkerExited {
  int local_rank = 0;
  rendezvous::ExitStatus status;
  rendezvous::WallTime time;
  std::string message;             // why it could not even start; else empty
  std::vector<int> exiting;        // local ranks of other workers that are already on their way out
  std::string out_of_memory = {};  // what says that it was killed for lack of memory; else empty
};
struct WorkerWords {  // what a dead worker left, known once its streams are drained
  std::string message = {};
  std::vector<std::string> stderr_tail = {};
  std::string error_record = {};
  std::string stderr_log = {};       // the file that has all of its stderr; empty: none
  std::string flight_recorder = {};  // libddp's file; empty: none
};
struct AllGone {                   // answer to ClearDescendants: no process is left
  std::vector<WorkerWords> words;  // by local rank
};
struct StopSignal {  // the user wants the job to end; again: at once
  int signal = 0;
};
struct Suspend {};  // the user's terminal: Ctrl-Z
struct Resume {};
struct GuardianGone {};
struct Tick {};
using AgentEvent =
    std::variant<LinkUp, LinkDown, LinkFailed, LinkRefused, BeatArrived, DirectiveArrived, WorkersStarted, SpawnFailed,
                 NeverStarted, WorkerDying, WorkerExited, AllGone, StopSignal, Suspend, Resume, GuardianGone, Tick>;

// ---- actions ----
struct StartWorkers {
  rendezvous::Assignment assignment;
};
struct SignalWorkers {  // the process group of each live worker
  int signal = 0;
};
struct SuspendWorkers {};  // with all below them; the clock of a stop under way goes on
struct ResumeWorkers {};
struct KillDescendants {};   // SIGKILL for everything below this agent
struct ClearDescendants {};  // all workers have exited: kill what they left, reap it, answer AllGone
struct SendReport {          // if there is a link
  rendezvous::AgentState state;
};
struct SendHeartbeat {};
struct Reconnect {  // the link says nothing any more: drop it, try another one
  std::string why;
};
struct LogLine {
  std::string text;
};
struct Leave {
  int exit_code = 0;
  rendezvous::Directive directive;  // why
  std::vector<int> unkillable;
};
using AgentAction = std::variant<StartWorkers, SignalWorkers, SuspendWorkers, ResumeWorkers, KillDescendants,
                                 ClearDescendants, SendReport, SendHeartbeat, Reconnect, LogLine, Leave>;

class AgentCore {
 public:
  enum class Phase { Idle, Starting, Running, Stopping, Killing, Clearing, Left };

  explicit AgentCore(AgentConfig config);

  void step(TimePoint now, const AgentEvent& event, std::vector<AgentAction>& actions);
  // When to send a Tick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;
  Phase phase() const { return phase_; }
  const rendezvous::AgentState& state() const { return state_; }

 private:
  void on(const LinkUp& event);
  void on(const LinkDown& event);
  void on(const LinkFailed& event);
  void on(const LinkRefused& event);
  void on(const BeatArrived& event);
  void on(const DirectiveArrived& event);
  void on(const WorkersStarted& event);
  void on(const SpawnFailed& event);
  void on(const NeverStarted& event);
  void on(const WorkerDying& event);
  void on(const WorkerExited& event);
  void on(const AllGone& event);
  void on(const StopSignal& event);
  void on(const Suspend& event);
  void on(const Resume& event);
  void on(const GuardianGone& event);
  void on(const Tick& event);

  void begin_round(int round);
  void run(const rendezvous::Directive& directive);
  rendezvous::WorkerFailure* failure_of(int local_rank);
  rendezvous::WorkerFailure& note_failure(int local_rank, rendezvous::WallTime time, const std::vector<int>& exiting);
  void skip_round(const rendezvous::Directive& directive);
  void stop(int signal);
  void kill();
  void kill_because(const std::string& reason);
  void become_idle();
  void end(int exit_code, std::string reason);
  void leave(rendezvous::Directive directive);
  void escalate();
  void decide_alone();
  void watch_lease();
  void watch_link();
  bool joined() const { return !state_.epoch.empty(); }
  bool has_running_workers() const;
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
  };

  AgentConfig config_;
  Phase phase_ = Phase::Idle;
  rendezvous::AgentState state_;
  rendezvous::Assignment assignment_;
  std::vector<Worker> workers_;                // by local rank
  std::set<int> workers_exiting_;              // local ranks that were on their way out at the first failure,
  std::set<int> exiting_when_told_;            // and when they were told to stop
  bool told_to_stop_ = false;                  // this round's workers were
  std::optional<rendezvous::Directive> next_;  // a round to run once idle
  std::optional<rendezvous::Directive> exit_;  // leave with it once idle
  int stop_signal_ = 0;                        // of the stop under way
  std::optional<TimePoint> deadline_;          // likewise
  bool suspended_ = false;                     // by the user; the link is not, so nobody takes this node for lost
  int users_signal_ = 0;                       // the first one
  std::optional<TimePoint> decision_until_;    // after a stop signal

  // The link.
  bool linked_ = false;
  std::string why_not_linked_ = "no answer yet";
  std::optional<TimePoint> started_;  // the first step
  TimePoint heard_;                   // the coordinator's newest word
  std::optional<TimePoint> asked_;    // when what it has not answered yet was sent: the report of a new link, or a beat
  TimePoint answered_;                // when the newest that it has answered was sent
  bool is_new_link_ = false;          // not a word has come over it
  std::optional<TimePoint> cut_;      // since when a link that was there is broken, or has not answered yet
  std::chrono::milliseconds lost_after_{0};
  std::optional<TimePoint> next_beat_, next_waiting_line_;
  std::optional<TimePoint> reconnected_;  // for its silence
  std::optional<TimePoint> due_;          // when a Tick was
  TimePoint now_;
  std::vector<AgentAction>* actions_ = nullptr;
};

}  // namespace ddp::launcher
