// SPDX-License-Identifier: BSD-3-Clause
// The words between an agent's cores and their driver: the settings that the cores are made with, the events that they
// take, and the actions that answer them. agent_core.hpp says which core decides what.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/link/messages.hpp"

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
struct NeverStarted {    // no worker runs
  std::string why = {};  // empty: a stop came before the start
  rendezvous::WallTime time = {};
};
struct WorkerDying {  // a worker is certain to end like this; WorkerExited follows once its memory is freed
  int local_rank = 0;
  rendezvous::ExitStatus status;  // never a success: of those only WorkerExited comes
  rendezvous::WallTime time;
  std::vector<int> exiting;  // as in WorkerExited
  std::string message = {};  // that it timed out, from its error file; else empty
};
struct WorkerExited {  // also if no process could be started in its place, see StartMissing
  int local_rank = 0;
  rendezvous::ExitStatus status;
  rendezvous::WallTime time;
  // Why its program could not be executed, which timer ended it, or that it timed out, from its error file; else empty.
  std::string message;
  std::vector<int> exiting;        // local ranks of other workers that are already exiting
  std::string out_of_memory = {};  // the evidence that it was killed for lack of memory; else empty
};
struct MissingStarted {  // a process runs in a place that StartMissing named
  int local_rank = 0;
  int pid = 0;
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
struct Suspend {  // Ctrl-Z on the user's terminal, or its end
  bool is_over = false;
};
struct GuardianGone {};
struct HeadGone {};  // what has started this node by --hosts is out of reach; another agent may take its place
struct Tick {};
using AgentEvent =
    std::variant<LinkUp, LinkDown, LinkFailed, LinkRefused, BeatArrived, DirectiveArrived, WorkersStarted, NeverStarted,
                 WorkerDying, WorkerExited, MissingStarted, WorkerStays, WorkerQuiet, AllGone, StopSignal, Suspend,
                 GuardianGone, HeadGone, Tick, HangFound, WordsRead, CoordinatorNamed>;

// ---- actions: the driver has a carry_out() for each ----
struct StartWorkers {
  rendezvous::Assignment assignment;
};
// The round begins with the workers that have stayed, and a new process in each of these places. Answered for each by
// MissingStarted, or by WorkerExited if no process could be started.
struct StartMissing {
  rendezvous::Assignment assignment;
  std::vector<int> local_ranks;
};
struct ReadWords {  // find out what these workers have left, which are reaped while others live; answer WordsRead
  std::vector<int> local_ranks;
};
struct RevokeRound {};  // show the workers that they are to leave the groups of this round
struct SignalWorker {   // to the process group of one worker
  int local_rank = 0;
  int signal = 0;  // SIGTERM or SIGKILL
};
// What becomes of the workers' stacks that are taken before they are stopped.
enum class StacksUse { NotTaken, Logged, Reported };
struct SignalWorkers {  // to the process group of each live worker
  int signal = 0;
  StacksUse stacks = StacksUse::NotTaken;
};
struct SuspendWorkers {  // and all their descendants; the deadline of a stop that is under way still holds
  bool is_over = false;  // they go on
};
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
using AgentAction = std::variant<StartWorkers, StartMissing, RevokeRound, SignalWorker, SignalWorkers, SuspendWorkers,
                                 KillDescendants, KillLeftovers, ClearDescendants, SendReport, SendHeartbeat,
                                 SetDeadman, Reconnect, LogLine, Leave, ReadWords>;

// What the cores of one agent share: the settings, the state that its reports carry, and the step that is under way.
struct AgentContext {
  explicit AgentContext(AgentConfig settings);
  void act(AgentAction action) { actions->push_back(std::move(action)); }

  const AgentConfig config;
  rendezvous::AgentState state;
  int users_signal = 0;  // the user's first stop signal; 0: none
  TimePoint now;
  std::vector<AgentAction>* actions = nullptr;
};

// Returns the earlier one of two times, of which nothing is never.
inline std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  return !a || (b && *b < *a) ? b : a;
}

// Returns "5 s".
std::string in_seconds(std::chrono::nanoseconds time);

}  // namespace ddp::launcher
