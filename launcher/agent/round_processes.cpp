// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/round_processes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launcher/output/stream_route.hpp"
#include "launcher/preload/archives.hpp"
#include "launcher/preload/memory_file.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/failure_hint.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/machine/process_folder.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ExitStatus;
using rendezvous::WorkerFailure;

namespace {

constexpr std::chrono::seconds kDrainDeadline(2);           // for a log file that blocks when a round ends
constexpr std::chrono::milliseconds kLookForLeftovers(20);  // a fork bomb's deaths must not fill all time
constexpr std::size_t kCommandWidth = 100;                  // characters of a command line in a message
constexpr std::chrono::milliseconds kSweepAgain(10);        // while descendants are still being killed
constexpr std::chrono::milliseconds kLookAgain(100);        // while they have time to end

rendezvous::WallTime now() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

ExitStatus status_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = 0};
  return {.code = 0, .signal = info.si_status};
}

// Returns the end of a second that an error file names; nothing if it is not between `start` and now.
std::optional<rendezvous::WallTime> end_of_second(std::optional<std::int64_t> second, rendezvous::WallTime start) {
  using std::chrono::seconds;
  const auto second_of = [](rendezvous::WallTime time) { return std::chrono::floor<seconds>(time.time_since_epoch()); };
  if (!second || *second < second_of(start).count() || *second > second_of(now()).count()) return std::nullopt;
  return rendezvous::WallTime(seconds(*second + 1) - std::chrono::milliseconds(1));
}

// Returns what stdin is to workers of the ddprun with this guardian. Workers lead sessions of their own, so the kernel
// does not stop a worker in the background that reads from the terminal.
StdinReader::Source source_of_stdin(pid_t guardian) {
  using Source = StdinReader::Source;
  if (isatty(STDIN_FILENO) == 0) return Source::FileOrPipe;
  return is_in_background(guardian) ? Source::TerminalOfOthers : Source::Terminal;
}

// Returns what workers inherit: this process's environment, with the archive, if there is one, first in PYTHONPATH. Its
// place there is this process's descriptor, at which all that a worker starts finds it, too.
Environment environment_of_workers(const Descriptor& archive) {
  Environment environment = inherited_environment();
  if (!archive) return environment;
  std::string& path = environment[contract::kPythonPath];
  const std::string place = rendezvous::process_folder(getpid()) + "/fd/" + std::to_string(archive.get());
  path = place + (path.empty() ? "" : ":" + path);
  return environment;
}

}  // namespace

RoundProcesses::RoundProcesses(rendezvous::asio::io_context& io, const LaunchConfig& config, const std::string& host,
                               const Limits& limits, const Guarded& guarded, const rendezvous::AgentState& state,
                               NodeOutput& out, Handle handle)
    : io_(io),
      config_(config),
      host_(host),
      limits_(limits),
      cgroup_(guarded.cgroup),
      state_(state),
      out_(out),
      handle_(std::move(handle)),
      gloo_start_(config.serve_gloo ? memory_file("ddprun_gloo", gloo_start_archive()) : Descriptor()),
      inherited_(environment_of_workers(gloo_start_)),
      visible_gpus_(gpus_of_workers(config)),
      death_watch_(io, config.workers, config.monitor_interval, death_watch_callbacks()),
      store_search_(io, out.log),
      look_timer_(io),
      sweep_timer_(io) {
  out_.log.debug("cgroup", cgroup_.describe());
  if (!config.timer_file.empty()) {
    file_timer_.emplace(io, config.timer_file, out.log,
                        [this](const ExpiredTimers& timers) { on_timers_expired(timers); });
    guarded.remove_if_killed(config.timer_file);
    out_.log.info("timer", "timers of workers are read from " + config.timer_file);
  }
  if (const std::string line = shared_gpus(config, visible_gpus_); !line.empty()) out_.log.warning("gpus", line);
}

std::string RoundProcesses::name_of(const Worker& worker) const {
  return "worker " + std::to_string(local_rank_of(worker)) + " (pid " + std::to_string(worker.pid) + ")";
}

// ---- Start ----

void RoundProcesses::preload() {
  if (config_.preload.empty()) return;
  WarmParent::Callbacks callbacks;
  callbacks.on_ready = [this](const std::string& modules, std::chrono::milliseconds took) {
    out_.log.info("preload", "imported " + modules + " in " + std::to_string(took.count()) + " ms");
    if (start_) start_workers();
    fork_missing();
  };
  callbacks.on_forked = [this](Spawned spawned) {
    if (start_) return on_workers_started(std::move(spawned));
    PendingProcess forked = std::move(missing_.front());
    missing_.pop_front();
    on_missing_started(forked.local_rank, std::move(spawned));
    fork_missing();
  };
  callbacks.on_lost = [this](const std::string& why) {
    out_.log.warning("preload", "--preload " + config_.preload + ": " + why + "; workers are started without it");
    if (start_) start_workers();
    fork_missing();
  };
  try {
    warm_parent_.emplace(io_, config_, node_environment(config_, inherited_, visible_gpus_), limits_,
                         std::move(callbacks));
  } catch (const Error& error) {
    out_.log.warning("preload", std::string(error.what()) + "; workers are started without it");
  }
}

void RoundProcesses::start(rendezvous::Assignment assignment, std::string agent_socket) {
  oom_.start();
  gpu_faults_.start();
  asked_.clear();
  asked_groups_.clear();
  killing_ = false;
  agent_socket_ = std::move(agent_socket);
  start_ = PendingStart{.round = state_.round};
  assignment_ = std::move(assignment);
  out_.events.round(assignment_);
  if (warm_parent_ && warm_parent_->is_importing()) {
    out_.log.info("preload", "the workers start once --preload " + config_.preload + " is done");
    return;
  }
  start_workers();
}

// Forks the workers from the warm parent if there is one, else from here; also if it is lost while it forks them.
void RoundProcesses::start_workers() {
  if (start_->is_cancelled) return never_started("");
  try {
    if (start_->commands.empty()) prepare_workers();
    if (warm_parent_ && warm_parent_->is_ready()) return warm_parent_->fork(start_->commands);
    on_workers_started(spawn(std::move(start_->commands)));
  } catch (const Error& error) {
    never_started(error.what());
  }
}

void RoundProcesses::never_started(const std::string& why) {
  start_.reset();
  workers_.clear();
  out_.output.end_round(kDrainDeadline);
  handle_(NeverStarted{why, now()});
}

void RoundProcesses::prepare_workers() {
  workers_.clear();
  workers_.resize(static_cast<std::size_t>(config_.workers));
  give_ranks();
  filter_lines(start_->round - 1);
  if (file_timer_) file_timer_->begin_round();
  for (Worker& worker : workers_) start_->commands.push_back(prepare_process(worker, start_->round, start_->files));
  out_.output.begin_round();
}

void RoundProcesses::give_ranks() {
  last_round_ = {};
  for (Worker& worker : workers_) {
    worker.rank = assignment_.base_rank + local_rank_of(worker);
    last_round_.ranks.push_back(worker.rank);
  }
}

WorkerCommand RoundProcesses::prepare_process(Worker& worker, int round, std::vector<Descriptor>& files) {
  const int local_rank = local_rank_of(worker);
  worker.round = round;
  worker.error_file = out_.attempts.error_file(round - 1, local_rank);
  worker.incarnation = rendezvous::random_id();
  WorkerCommand command;
  command.path = config_.program.path;
  command.arguments = worker_command(config_, local_rank);

  // Environment.
  const WorkerPlace place = {local_rank, worker.incarnation, worker.error_file,
                             death_watch_.liveness_word_of(local_rank), agent_socket_};
  for (const auto& [name, value] : worker_environment(config_, assignment_, place, inherited_, visible_gpus_)) {
    command.environment.push_back(name + "=" + value);
  }

  // Streams.
  const std::string folder = out_.attempts.of_worker(round - 1, local_rank);
  const StreamOwner owner = {config_.role, host_, local_rank, worker.rank, config_.workers, folder};
  WorkerRoutes routes = route_streams(config_.logs, owner, out_.output.consoles());
  const auto open_stream = [&](StreamRoute& route) {
    route.goes_on = worker.pid_before != 0;
    return files.emplace_back(out_.output.open_stream(route)).get();
  };
  worker.reads_stdin = config_.stdin_reader.reads(worker.rank, source_of_stdin(config_.launcher_pid));
  command.stdin_fd = worker.reads_stdin ? STDIN_FILENO : -1;
  if (!routes.are_one) command.stdout_fd = open_stream(routes.out);
  command.stderr_fd = open_stream(routes.err);
  if (routes.are_one) command.stdout_fd = command.stderr_fd;

  // Limits, CPUs and control group.
  command.limits = limits_;
  if (!config_.bindings.empty()) command.cpus = to_mask(config_.bindings[static_cast<std::size_t>(local_rank)].cpus);
  command.cgroup_fd = files.emplace_back(cgroup_.open_worker(worker.round, local_rank)).get();
  return command;
}

void RoundProcesses::filter_lines(int attempt) {
  const LogConfig& logs = config_.logs;
  if (logs.stdout_filters.empty() && logs.stderr_filters.empty()) return;
  const std::string folder = out_.attempts.of_attempt(attempt);
  if (folder.empty()) return;
  if (!logs.stdout_filters.empty()) {
    out_.output.filter_lines(Console::Stdout, folder + "/filtered_stdout.log", logs.stdout_filters);
  }
  if (!logs.stderr_filters.empty()) {
    out_.output.filter_lines(Console::Stderr, folder + "/filtered_stderr.log", logs.stderr_filters);
  }
}

void RoundProcesses::on_workers_started(Spawned spawned) {
  spawned_.emplace(std::move(spawned));
  for (int i = 0; i < config_.workers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    workers_[index].pid = spawned_->pids()[index];
    workers_[index].started_at = now();
    death_watch_.watch(i, workers_[index].pid);
    out_.events.worker_started(i, workers_[index].pid);
  }
  out_.log.info("workers_started", "round " + std::to_string(start_->round) + ": started " +
                                       std::to_string(workers_.size()) + " workers of " + config_.program.name +
                                       "; store at " + assignment_.master_addr + ":" +
                                       std::to_string(assignment_.master_port));
  if (assignment_.base_rank == 0) {
    store_search_.start(workers_[0].pid, assignment_.master_addr, assignment_.master_port);
  }
  start_.reset();
  handle_(WorkersStarted{{spawned_->pids().begin(), spawned_->pids().end()}});
}

// ---- A round with workers that have stayed ----

void RoundProcesses::start_missing(rendezvous::Assignment assignment, const std::vector<int>& local_ranks) {
  assignment_ = std::move(assignment);
  out_.events.round(assignment_);
  give_ranks();
  for (const int local_rank : local_ranks) start_in_place(local_rank);
}

// A process of a worker that is reaped is followed by another one.
void RoundProcesses::start_in_place(int local_rank) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  // What the dead process has left would hold its group's memory, and the names that it had.
  worker.leftovers_killed = true;
  cgroup_.kill_worker(worker.round, local_rank);
  signal_leftovers();
  worker.leftovers_killed = false;
  worker.pid_before = std::exchange(worker.pid, 0);
  worker.end_recorded = false;
  worker.incarnation_before = worker.incarnation;
  worker.expired_timers.clear();
  worker.spawned.reset();
  worker.calls.reset();
  worker.connections.reset();
  try {
    PendingProcess pending{.local_rank = local_rank};
    pending.command = prepare_process(worker, state_.round, pending.files);
    if (!worker.error_file.empty()) unlink(worker.error_file.c_str());
    out_.output.begin_round();
    missing_.push_back(std::move(pending));
  } catch (const Error& error) {
    return missing_never_started(local_rank, error.what());
  }
  fork_missing();
}

// Starts those that can be started now: the warm parent, if there is one, forks one after the other.
void RoundProcesses::fork_missing() {
  while (!missing_.empty()) {
    PendingProcess& next = missing_.front();
    if (warm_parent_ && warm_parent_->is_ready()) return warm_parent_->fork({next.command});
    if (warm_parent_ && warm_parent_->is_forking()) return;
    PendingProcess starting = std::move(next);
    missing_.pop_front();
    try {
      std::vector<WorkerCommand> commands;
      commands.push_back(std::move(starting.command));
      on_missing_started(starting.local_rank, spawn(std::move(commands)));
    } catch (const Error& error) {
      missing_never_started(starting.local_rank, error.what());
    }
  }
}

void RoundProcesses::missing_never_started(int local_rank, const std::string& why) {
  handle_(WorkerExited{.local_rank = local_rank,
                       .status = {.code = 1, .signal = 0},
                       .time = now(),
                       .message = "no process could be started in its place: " + why,
                       .exiting = {}});
}

void RoundProcesses::on_missing_started(int local_rank, Spawned spawned) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  worker.pid = spawned.pids()[0];
  worker.started_at = now();
  worker.reaped = false;
  worker.spawned.emplace(std::move(spawned));
  death_watch_.watch(local_rank, worker.pid);
  out_.events.worker_started(local_rank, worker.pid);
  out_.log.info(
      "successor_started",
      name_of(worker) + " takes the place of process " + std::to_string(worker.pid_before) + ", which has died",
      worker.rank);
  handle_(MissingStarted{local_rank, worker.pid});
  const auto ends = std::exchange(early_ends_, {});
  if (const auto end = ends.find(worker.pid); end != ends.end()) on_worker_exit(worker, end->second);
}

// Returns whether the workers are still to come, so that nothing else can reach them.
bool RoundProcesses::cancel_start() {
  if (!start_) return false;
  start_->is_cancelled = true;
  if (start_->commands.empty()) never_started("");  // else they come in a moment, and the core says it again
  return true;
}

// ---- Signals ----

void RoundProcesses::stop(int signal) {
  if (cancel_start()) return;
  if (file_timer_) file_timer_->end_round();  // they have their grace
  for (const Worker& worker : workers_) stop_worker(local_rank_of(worker), signal);
}

void RoundProcesses::stop_worker(int local_rank, int signal) {
  const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  if (!worker.is_there()) return;
  ::kill(-worker.pid, SIGCONT);  // a stopped process would not hear it; first, since it takes back a SIGTSTP
  // One that was forked a moment ago may lead no group yet; for itself the signal waits until it has been executed.
  if (::kill(-worker.pid, signal) != 0) ::kill(worker.pid, signal);
  asked_groups_.insert(worker.pid);
}

void RoundProcesses::pass_on(int signal) const {
  for (const Worker& worker : workers_) {
    if (worker.is_there()) ::kill(worker.pid, signal);
  }
}

std::vector<int> RoundProcesses::ranks_without_handler(int signal) const {
  std::vector<int> ranks;
  for (const Worker& worker : workers_) {
    if (worker.is_there() && !is_exiting(worker.pid) && !catches_signal(worker.pid, signal)) {
      ranks.push_back(worker.rank);
    }
  }
  return ranks;
}

// Not only their process groups: a job inside the job is in sessions of its own. SIGTSTP would not do, since it stops
// nothing in a session without a shell. Twice, for what the first ones were starting meanwhile.
void RoundProcesses::suspend(bool is_over) {
  if (is_over) return signal_descendants(SIGCONT);
  for (int pass = 0; pass < 2; ++pass) signal_descendants(SIGSTOP);
}

void RoundProcesses::kill() {
  if (cancel_start()) return;
  if (file_timer_) file_timer_->end_round();
  killing_ = true;
  if (clearing_) return clear_descendants();
  kill_descendants();
}

void RoundProcesses::kill_descendants() {
  cgroup_.kill();
  signal_descendants(SIGKILL, children_to_keep());
}

// Returns the children that live through the rounds.
std::vector<pid_t> RoundProcesses::children_to_keep() const {
  return warm_parent_ && warm_parent_->pid() != 0 ? std::vector<pid_t>{warm_parent_->pid()} : std::vector<pid_t>{};
}

// ---- Deaths ----

DeathWatch::Callbacks RoundProcesses::death_watch_callbacks() {
  DeathWatch::Callbacks callbacks;
  callbacks.dying = [this](int local_rank, int wait_status) {
    on_worker_dying(local_rank, ExitStatus::of(wait_status));
  };
  callbacks.large = [this](int local_rank) {
    const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
    out_.log.debug("worker_large",
                   name_of(worker) + " uses much memory and shows no liveness word: polled every " +
                       std::to_string(config_.monitor_interval.count()) + " ms",
                   worker.rank);
  };
  return callbacks;
}

void RoundProcesses::on_worker_dying(int local_rank, ExitStatus ends_so) {
  const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  out_.log.debug("worker_dying", name_of(worker) + " " + describe(ends_so) + "; its memory is not freed yet",
                 worker.rank);
  handle_(WorkerDying{local_rank, ends_so, now(), exiting_workers(), timeout_of(worker)});
}

// Returns what a worker's error file says if it is that it waited in vain: the stop of the others depends on it.
std::string RoundProcesses::timeout_of(const Worker& worker) {
  std::string text = read_error_file(worker.error_file).text;
  return is_timeout(text) ? text : "";
}

std::vector<int> RoundProcesses::exiting_workers() const {
  std::vector<int> exiting;
  for (const Worker& worker : workers_) {
    if (worker.is_there() && is_exiting(worker.pid)) exiting.push_back(local_rank_of(worker));
  }
  return exiting;
}

std::vector<WorkerView> RoundProcesses::running_workers() const {
  std::vector<WorkerView> running;
  for (const Worker& worker : workers_) {
    if (worker.is_there()) running.push_back({.rank = worker.rank, .pid = worker.pid});
  }
  return running;
}

std::vector<StackHelper::Worker> RoundProcesses::workers_with_stacks() const {
  std::vector<StackHelper::Worker> found;
  for (const Worker& worker : workers_) {
    if (!worker.is_there() || is_exiting(worker.pid)) continue;
    found.push_back({worker.rank, worker.pid, worker.calls ? worker.calls->read() : std::vector<GroupCalls>()});
  }
  return found;
}

void RoundProcesses::add_calls(WorkerView& view) const {
  for (const Worker& worker : workers_) {
    if (worker.rank != view.rank || !worker.calls) continue;
    CallSummary summary = worker.calls->summary();
    view.now_in = std::move(summary.now_in);
    view.milliseconds_in = summary.milliseconds;
    view.in_collectives_percent = summary.in_collectives_percent;
  }
}

std::map<int, std::string> RoundProcesses::flight_records() const {
  std::map<int, std::string> found;
  for (const Worker& worker : workers_) {
    std::string record = worker.calls && worker.is_there() ? worker.calls->flight_record(worker.rank) : "";
    if (!record.empty()) found[worker.rank] = std::move(record);
  }
  return found;
}

const Descriptor* RoundProcesses::give_call_memory(int local_rank) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  return worker.calls ? nullptr : &worker.calls.emplace().descriptor();
}

bool RoundProcesses::end_when_revoked(int local_rank, SocketChoice connections) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  if (!worker.is_there()) return false;
  const std::string why = why_not_endable(worker.pid);
  if (!why.empty() && !std::exchange(has_said_unendable_, true)) {
    out_.log.info("survivors",
                  "the system does not let ddprun end the connections of its workers (" + why +
                      "; in a container --cap-add SYS_PTRACE allows it): when others fail, each ends its own");
  }
  worker.connections.reset();
  if (why.empty()) worker.connections = std::move(connections);
  return why.empty();
}

void RoundProcesses::end_connections() {
  for (Worker& worker : workers_) {
    const auto connections = std::exchange(worker.connections, std::nullopt);
    if (connections && worker.is_there()) ::ddp::launcher::end_connections(worker.pid, *connections);
  }
}

std::optional<int> RoundProcesses::local_rank_of(const std::string& incarnation) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) {
    return !incarnation.empty() && w.incarnation == incarnation;
  });
  if (found == workers_.end()) return std::nullopt;
  return local_rank_of(*found);
}

void RoundProcesses::reap() {
  while (true) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) break;
    const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                     [&](const Worker& w) { return w.pid == info.si_pid && !w.reaped; });
    asked_.erase(info.si_pid);  // the number is free again
    if (file_timer_) file_timer_->forget(info.si_pid);
    if (worker != workers_.end()) {
      on_worker_exit(*worker, status_of(info));
    } else if (warm_parent_) {
      if (!missing_.empty()) early_ends_[info.si_pid] = status_of(info);
      warm_parent_->note_reaped(info.si_pid, status_of(info));
    }
  }
  if (clearing_) {
    clear_descendants();
  } else {
    look_for_leftovers();
  }
}

void RoundProcesses::on_worker_exit(Worker& worker, ExitStatus status) {
  worker.reaped = true;
  worker.names_leftover = status.success() && asked_groups_.count(worker.pid) == 0;
  if (worker.rank == 0) store_search_.stop();
  WorkerExited event;
  event.local_rank = local_rank_of(worker);
  death_watch_.forget(event.local_rank);
  event.time = now();
  const auto failure = worker.spawned ? worker.spawned->exec_failure(0) : spawned_->exec_failure(event.local_rank);
  if (failure) {
    event.message = why_it_never_ran(*failure);
    status = {.code = failure->error == ENOENT ? rendezvous::kNotFound : rendezvous::kCannotExecute, .signal = 0};
  }
  event.status = status;
  const bool by_timer = !worker.expired_timers.empty() && status.signal == worker.timer_signal;
  if (by_timer) event.message = worker.expired_timers;
  if (!status.success() && event.message.empty()) event.message = timeout_of(worker);
  // A shell script that is the worker ends with 128 + 9 after its program was killed.
  const bool was_killed = status.signal == SIGKILL || status.code == 128 + SIGKILL;
  if (was_killed && !by_timer) event.out_of_memory = oom_.explain(worker.pid);
  if (!status.success()) event.exiting = exiting_workers();
  if (!status.success() && !by_timer) worker.gpu_fault = gpu_faults_.explain(worker.pid);
  out_.log.info("worker_exited", name_of(worker) + " " + describe(status), worker.rank);
  handle_(event);
}

// ---- Timers ----

void RoundProcesses::on_timers_expired(const ExpiredTimers& timers) {
  const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                   [&](const Worker& w) { return w.is_there() && w.pid == timers.pid; });
  const bool is_worker = worker != workers_.end();
  const std::string who = is_worker ? name_of(*worker) : "process " + std::to_string(timers.pid);
  const std::string what = who + ": " + describe(timers);
  if (timers.signal == 0) return out_.log.warning("timer_expired", what + "; it names no signal, so nothing is done");
  if (!signal_descendant(timers)) {
    if (start_time_of(timers.pid) != timers.start_time || is_exiting(timers.pid)) return;  // it has ended by itself
    return out_.log.warning("timer_expired", what + "; it is no process of this job, so it is left alone");
  }
  out_.log.warning("timer_expired", what + ": sent " + rendezvous::signal_name(timers.signal),
                   is_worker ? Log::Rank(worker->rank) : Log::Rank());
  if (!is_worker) return;
  worker->expired_timers = describe(timers);
  worker->timer_signal = timers.signal;
}

// Sends the signal to the process if it runs and is a descendant, and returns whether it is one. Only the process
// itself is meant, as with torchrun.
bool RoundProcesses::signal_descendant(const ExpiredTimers& timers) {
  bool is_found = false;
  const std::vector<pid_t> kept = children_to_keep();
  for (const pid_t child : children_of_self()) {
    if (is_found || std::find(kept.begin(), kept.end(), child) != kept.end()) continue;
    signal_family(child, timers.signal, [&](pid_t pid) {
      if (pid != timers.pid || start_time_of(pid) != timers.start_time || is_exiting(pid)) return false;
      return is_found = true;
    });
  }
  return is_found;
}

std::string RoundProcesses::why_it_never_ran(const ExecFailure& failure) const {
  if (failure.step == ExecFailure::Step::Execute) {
    return "cannot execute " + config_.program.path + ": " + strerror(failure.error);
  }
  const WorkerBinding& binding = config_.bindings[static_cast<std::size_t>(failure.index)];
  return "cannot be bound to CPUs " + to_cpu_list(binding.cpus) + ": " + strerror(failure.error) +
         " (were they taken away since ddprun started?)";
}

// Returns the worker that left this child of ours when it exited; null: none did. Living workers orphan processes too,
// so the session tells them apart, and the incarnation for a process that is in another one.
RoundProcesses::Worker* RoundProcesses::left_by(pid_t child) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) {
    const bool by_this =
        w.reaped && (is_in_session_of(w.pid, child) || was_started_with(child, contract::kIncarnation, w.incarnation));
    const bool by_the_one_before =
        w.pid_before != 0 && (is_in_session_of(w.pid_before, child) ||
                              was_started_with(child, contract::kIncarnation, w.incarnation_before));
    return by_this || by_the_one_before;
  });
  return found == workers_.end() ? nullptr : &*found;
}

// Looks now, or in a moment if it has just looked.
void RoundProcesses::look_for_leftovers() {
  looks_again_ = has_looked_;
  if (has_looked_) return;
  signal_leftovers();
  has_looked_ = true;
  look_timer_.expires_after(kLookForLeftovers);
  look_timer_.async_wait([this](const auto& error) {
    has_looked_ = false;
    if (!error && looks_again_) look_for_leftovers();
  });
}

// Asks what dead workers left to end, or kills it if its time is over. A process that is born meanwhile becomes our
// child when its parent dies.
void RoundProcesses::signal_leftovers() {
  const auto has_died = [](const Worker& w) { return w.reaped || w.pid_before != 0; };
  if (std::none_of(workers_.begin(), workers_.end(), has_died)) return;
  const bool any_killed =
      std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.leftovers_killed; });
  const std::vector<pid_t> kept = children_to_keep();
  for (const pid_t child : children_of_self()) {
    if (asked_.count(child) != 0 && !any_killed) continue;
    const auto is_living = [&](const Worker& w) { return !w.reaped && w.pid == child; };
    if (std::any_of(workers_.begin(), workers_.end(), is_living)) continue;
    if (std::find(kept.begin(), kept.end(), child) != kept.end()) continue;
    Worker* const worker = left_by(child);
    if (worker && worker->leftovers_killed) {
      signal_family(child, SIGKILL);
    } else if (worker || clearing_) {
      if (worker && worker->names_leftover) tell_of_leftover(*worker, child);
      ask_to_end(child);
    }
  }
}

// Names a process that is ended since its worker has succeeded without waiting for it. Python's own helpers
// (multiprocessing.resource_tracker) are left in this way on purpose.
void RoundProcesses::tell_of_leftover(Worker& worker, pid_t child) {
  const std::string command = command_line_of(child);
  if (is_exiting(child) || command.empty() || command.find("multiprocessing") != command.npos) return;
  worker.names_leftover = false;
  out_.log.warning("leftovers",
                   "process " + std::to_string(child) + " (" +
                       rendezvous::cut_line(rendezvous::printable_line(command), kCommandWidth) + ") still ran when " +
                       name_of(worker) +
                       ", which had started it, exited with code 0: ddprun ends it with its worker; a worker must wait "
                       "for what is to be completed",
                   worker.rank);
}

// Sends SIGTERM to a child and everything below it, but to no process that was asked before.
void RoundProcesses::ask_to_end(pid_t child) {
  signal_family(child, SIGTERM, [this](pid_t pid) {
    const bool is_first_time = asked_.insert(pid).second;
    return is_first_time && asked_groups_.count(getpgid(pid)) == 0;
  });
}

void RoundProcesses::kill_leftovers(int local_rank, std::chrono::milliseconds grace) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  const std::vector<pid_t> children = children_of_self();
  if (std::any_of(children.begin(), children.end(), [&](pid_t child) { return left_by(child) == &worker; })) {
    out_.log.warning("leftovers",
                     "processes that " + name_of(worker) + " left did not end within " + rendezvous::to_string(grace) +
                         ": killing them",
                     worker.rank);
  }
  worker.leftovers_killed = true;
  cgroup_.kill_worker(worker.round, local_rank);
  signal_leftovers();
}

// ---- The end of the round ----

void RoundProcesses::clear() {
  clearing_ = true;
  clear_descendants();
}

void RoundProcesses::clear_descendants() {
  siginfo_t info = {};
  int waited;
  while ((waited = waitid(P_ALL, 0, &info, WEXITED | WNOHANG)) == 0 && info.si_pid != 0) {
    if (warm_parent_) warm_parent_->note_reaped(info.si_pid, status_of(info));
  }
  const bool is_childless = waited < 0 && errno == ECHILD;
  // The kernel's list of children may miss some while they come and go, so it is asked only if some are kept.
  const std::vector<pid_t> kept = children_to_keep();
  if (is_childless || (!kept.empty() && children_of_self() == kept)) {
    clearing_ = false;
    sweep_timer_.cancel();
    on_all_gone();
    return;
  }
  if (killing_) {
    kill_descendants();
  } else {
    look_for_leftovers();
  }
  // Their deaths wake us; a process born while we looked does not.
  sweep_timer_.expires_after(killing_ ? kSweepAgain : kLookAgain);
  sweep_timer_.async_wait([this](const auto& error) {
    if (!error && clearing_) clear_descendants();
  });
}

void RoundProcesses::on_all_gone() {
  store_search_.stop();
  if (file_timer_) file_timer_->end_round();
  auto last_words = out_.output.end_round(kDrainDeadline);
  last_words.resize(workers_.size());
  AllGone event;
  const std::string log_error = error_of_own_logs();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    event.words.push_back(words_of(worker, std::move(last_words[i]), log_error));
    record_end(worker, event.words.back().message);
    if (!read_error_file(worker.error_file).text.empty()) last_round_.error_files[worker.rank] = worker.error_file;
    cgroup_.remove_worker(worker.round, static_cast<int>(i));
  }
  out_.events.round_ended();
  workers_.clear();
  handle_(event);
}

void RoundProcesses::read_words(const std::vector<int>& local_ranks) {
  auto last_words = out_.output.last_words(local_ranks, kDrainDeadline);
  last_words.resize(workers_.size());
  WordsRead event{.local_ranks = local_ranks, .words = {}};
  const std::string log_error = error_of_own_logs();
  for (const int local_rank : local_ranks) {
    const auto index = static_cast<std::size_t>(local_rank);
    event.words.push_back(words_of(workers_[index], std::move(last_words[index]), log_error));
    record_end(workers_[index], event.words.back().message);
  }
  handle_(event);
}

// Returns what a worker that is reaped has left.
WorkerWords RoundProcesses::words_of(const Worker& worker, Output::LastWords last, const std::string& log_error) const {
  ErrorFile error = read_error_file(worker.error_file);
  const std::string recorder = contract::flight_recorder_file(worker.error_file, worker.rank);
  const bool has_recorder = !worker.error_file.empty() && access(recorder.c_str(), R_OK) == 0;
  if (!worker.expired_timers.empty()) {
    error.text = worker.expired_timers + (error.text.empty() ? "" : "\n") + error.text;
  }
  return {std::move(error.text),
          std::move(last.lines),
          std::move(error.record),
          std::move(last.log),
          has_recorder ? recorder : "",
          log_error,
          worker.gpu_fault,
          end_of_second(error.unix_seconds, worker.started_at),
          worker.reads_stdin || config_.stdin_reader.who == StdinReader::Who::None};
}

// Returns why files that workers write themselves may lack their end. Nobody else notices: what is teed is written
// here.
std::string RoundProcesses::error_of_own_logs() {
  if (!config_.logs.redirects.has_any()) return "";
  std::string error = out_.attempts.write_error();
  if (!error.empty())
    out_.log.warning("log_cut_off", "the logs in " + out_.attempts.root() + " may be cut off: " + error);
  return error;
}

void RoundProcesses::record_end(Worker& worker, const std::string& message) {
  if (std::exchange(worker.end_recorded, true)) return;
  const int local_rank = local_rank_of(worker);
  const auto failed = std::find_if(state_.failures.begin(), state_.failures.end(),
                                   [&](const WorkerFailure& f) { return f.local_rank == local_rank; });
  std::optional<WorkerFailure> failure;
  if (failed != state_.failures.end()) {
    failure = *failed;
    if (failure->message.empty()) failure->message = message;
  }
  out_.events.worker_ended(local_rank, worker.pid, failure ? &*failure : nullptr);
}

void RoundProcesses::end() {
  if (warm_parent_) warm_parent_->end();
  look_timer_.cancel();
  sweep_timer_.cancel();
  store_search_.stop();
  if (file_timer_) file_timer_->stop();
  death_watch_.stop();
}

}  // namespace ddp::launcher
