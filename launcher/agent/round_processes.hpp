// SPDX-License-Identifier: BSD-3-Clause
// The processes of a round on this node: starts the workers, sees them die, reaps them and kills what they leave, and
// turns all of it into events for AgentCore. The warm parent (--preload), which outlives rounds, is here too.
//
//     start() ──▶ WorkersStarted or NeverStarted
//     start_missing() ──▶ MissingStarted or WorkerExited, for each
//                 WorkerDying, WorkerExited      for each worker
//     clear() ──▶ AllGone                        no process of the round is left
//
// What a worker leaves when it exits is sent SIGTERM as soon as it is found, each process once. It is killed only when
// the core says so.
//
// All calls come from the thread that runs `io`: workers die with the thread that forked them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/node_output.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/config/worker_environment.hpp"
#include "launcher/diagnosis/call_memory.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "launcher/diagnosis/store_search.hpp"
#include "launcher/diagnosis/timers/file_timer.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/preload/warm_parent.hpp"
#include "launcher/process/death_watch.hpp"
#include "launcher/process/job_cgroup.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/process/spawner.hpp"
#include "launcher/process/tcp_sockets.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/gpu_fault.hpp"
#include "launcher/report/oom.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class RoundProcesses {
 public:
  // Gives an event to the core and carries out its actions, before it returns.
  using Handle = std::function<void(const AgentEvent&)>;

  // `limits` are the workers'. `state` is the core's, for the numbers and failures of its round. Throws
  // rendezvous::Error if there are too few GPUs for --virtual-local-rank, or if the FIFO for timers cannot be made.
  RoundProcesses(rendezvous::asio::io_context& io, const LaunchConfig& config, const std::string& host,
                 const Limits& limits, const Guarded& guarded, const rendezvous::AgentState& state, NodeOutput& out,
                 Handle handle);

  // Starts the warm parent, if --preload asks for one. A round that begins meanwhile waits for it.
  void preload();

  // Starts the workers of state.round, which find this agent at `agent_socket` (empty: nowhere).
  void start(rendezvous::Assignment assignment, std::string agent_socket);

  // Begins a round with the workers that live, and starts another process in each of these places, the processes of
  // which are reaped. What those have left is killed. Answers MissingStarted for each, or WorkerExited if no process
  // could be started.
  void start_missing(rendezvous::Assignment assignment, const std::vector<int>& local_ranks);

  // Send a signal that ends workers, or asks them to end, to their process groups.
  void stop(int signal);
  void stop_worker(int local_rank, int signal);
  // Sends a signal to the workers themselves, not to what they have started: their handlers are the ones meant.
  void pass_on(int signal) const;
  // Returns the ranks of workers that the signal would end, since they do not handle it.
  std::vector<int> ranks_without_handler(int signal) const;
  void suspend(bool is_over);
  void kill();
  // Kills what this worker, which has exited, left; `grace` is the time that it had, for the user.
  void kill_leftovers(int local_rank, std::chrono::milliseconds grace);

  // Finds out what these workers, which are reaped, have written, and answers WordsRead.
  void read_words(const std::vector<int>& local_ranks);

  // Awaits and reaps what the round has left, then answers AllGone.
  void clear();

  // Reaps what has died: workers, and what dead workers left. To be called at each SIGCHLD.
  void reap();

  // Returns the local ranks of workers that run no more, though they are not reaped yet.
  std::vector<int> exiting_workers() const;

  // Returns the workers that have started and are not reaped.
  std::vector<WorkerView> running_workers() const;
  // Returns those of them that are not exiting.
  std::vector<StackHelper::Worker> workers_with_stacks() const;
  // Adds what a worker of libddp is in now.
  void add_calls(WorkerView& view) const;
  // Returns the last operations of each worker of libddp that runs, by rank, see CallMemory.
  std::map<int, std::string> flight_records() const;
  // Returns memory for the calls of a worker, once, so that its descendants do not get it, too; null if it has the
  // memory. Throws rendezvous::Error.
  const Descriptor* give_call_memory(int local_rank);
  // Ends those connections of a worker when the round is revoked. Returns whether the system lets this process do so.
  bool end_when_revoked(int local_rank, SocketChoice connections);
  // Ends them now, so that workers that wait for one that is gone get an error. What they open later is not concerned.
  void end_connections();
  // Returns the local rank of the worker that was started with this incarnation; nothing if none was, in this round.
  std::optional<int> local_rank_of(const std::string& incarnation) const;

  // This node's part of the newest round.
  const LastRound& last_round() const { return last_round_; }

  // Ends the warm parent; afterwards nothing keeps the loop running.
  void end();

 private:
  struct Worker {
    pid_t pid = 0;
    int rank = 0;
    int round = 0;
    bool reaped = false;
    bool reads_stdin = false;
    bool names_leftover = false;  // what it leaves is named, once: it has exited with 0, and nobody had asked it to
    rendezvous::WallTime started_at{};
    bool leftovers_killed = false;  // what it left is killed as soon as it is found
    bool end_recorded = false;      // among the job's events
    std::string incarnation;
    std::string error_file;
    std::string gpu_fault;       // what has happened to the memory of its GPU; empty: nothing known
    std::string expired_timers;  // why it was sent timer_signal; empty: it was not
    int timer_signal = 0;
    // The worker's process in the round before, if that process ended while other workers stayed. The agent kills the
    // processes that it has left.
    pid_t pid_before = 0;
    std::string incarnation_before{};
    std::optional<Spawned> spawned{};           // the process alone; none: it was started with the others
    std::optional<CallMemory> calls{};          // if it has asked for it
    std::optional<SocketChoice> connections{};  // that end when the round is revoked

    bool is_there() const { return pid != 0 && !reaped; }
  };

  // A start of workers that is not over: it waits for the warm parent, or the warm parent forks them.
  struct PendingStart {
    int round = 0;                             // the core may know of a newer one meanwhile
    std::vector<WorkerCommand> commands = {};  // empty: waits for the warm parent
    std::vector<Descriptor> files = {};        // what the commands name
    bool is_cancelled = false;
  };
  // A start of one process that waits for the warm parent, or that the warm parent forks.
  struct PendingProcess {
    int local_rank = 0;
    WorkerCommand command{};
    std::vector<Descriptor> files{};
  };

  DeathWatch::Callbacks death_watch_callbacks();
  void on_worker_dying(int local_rank, rendezvous::ExitStatus ends_so);
  static std::string timeout_of(const Worker& worker);
  void on_worker_exit(Worker& worker, rendezvous::ExitStatus status);
  void on_timers_expired(const ExpiredTimers& timers);
  bool signal_descendant(const ExpiredTimers& timers);
  std::string why_it_never_ran(const ExecFailure& failure) const;
  void start_workers();
  void prepare_workers();
  void give_ranks();
  // `files` gets what the command names.
  WorkerCommand prepare_process(Worker& worker, int round, std::vector<Descriptor>& files);
  void start_in_place(int local_rank);
  void fork_missing();
  void on_missing_started(int local_rank, Spawned spawned);
  void missing_never_started(int local_rank, const std::string& why);
  void filter_lines(int attempt);
  void on_workers_started(Spawned spawned);
  void never_started(const std::string& why);  // empty: a stop came before the start
  bool cancel_start();
  void look_for_leftovers();
  void signal_leftovers();
  Worker* left_by(pid_t child);
  void ask_to_end(pid_t child);
  void tell_of_leftover(Worker& worker, pid_t child);
  void kill_descendants();
  void clear_descendants();
  void on_all_gone();
  std::string error_of_own_logs();
  WorkerWords words_of(const Worker& worker, Output::LastWords last, const std::string& log_error) const;
  void record_end(Worker& worker, const std::string& message);
  std::vector<pid_t> children_to_keep() const;
  int local_rank_of(const Worker& worker) const { return static_cast<int>(&worker - workers_.data()); }
  std::string name_of(const Worker& worker) const;

  rendezvous::asio::io_context& io_;
  const LaunchConfig& config_;
  const std::string host_;
  const Limits limits_;
  const JobCgroup cgroup_;
  const rendezvous::AgentState& state_;
  NodeOutput& out_;
  const Handle handle_;
  const Descriptor gloo_start_;  // the archive that every Python of the job opens (--gloo=ddp)
  const Environment inherited_;
  const VisibleGpus visible_gpus_;

  std::optional<WarmParent> warm_parent_;
  std::optional<PendingStart> start_;
  std::vector<Worker> workers_;  // by local rank, in the newest round
  std::optional<Spawned> spawned_;
  rendezvous::Assignment assignment_;                     // in the newest round that was begun
  std::string agent_socket_;                              // as the workers know it
  std::deque<PendingProcess> missing_{};                  // the first one may be asked for
  std::map<pid_t, rendezvous::ExitStatus> early_ends_{};  // children reaped while the warm parent forks these
  LastRound last_round_;
  DeathWatch death_watch_;
  OomWatch oom_;
  GpuFaultWatch gpu_faults_;
  StoreSearch store_search_;
  std::optional<FileTimer> file_timer_;  // absent: not enabled
  std::set<pid_t> asked_;                // processes that were asked to end, since a dead worker left them
  std::set<pid_t> asked_groups_;         // process groups that were asked to end with their worker
  bool has_said_unendable_ = false;      // that workers end their connections themselves
  bool has_looked_ = false;              // for leftovers, a moment ago
  bool looks_again_ = false;             // once that moment is over
  rendezvous::asio::steady_timer look_timer_;
  bool killing_ = false;  // nothing of this round may live any more
  bool clearing_ = false;
  rendezvous::asio::steady_timer sweep_timer_;
};

}  // namespace ddp::launcher
