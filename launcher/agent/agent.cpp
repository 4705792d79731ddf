// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/agent.hpp"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/coordination.hpp"
#include "launcher/config/worker_environment.hpp"
#include "launcher/output/attempt_folder.hpp"
#include "launcher/output/event_log.hpp"
#include "launcher/output/output.hpp"
#include "launcher/output/stream_route.hpp"
#include "launcher/placement/gpus.hpp"
#include "launcher/preload/warm_parent.hpp"
#include "launcher/process/death_watch.hpp"
#include "launcher/process/double_signal.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawner.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/oom.hpp"
#include "launcher/report/torchrun_summary.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/own_address.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::ExitStatus;

namespace {

constexpr std::chrono::seconds kDrainDeadline(2);     // for a console that is stuck when a round ends
constexpr std::chrono::milliseconds kSweepAgain(10);  // while descendants are still being killed

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

rendezvous::WallTime now() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

ExitStatus status_of(int wait_status) {
  if (WIFEXITED(wait_status)) return {.code = WEXITSTATUS(wait_status), .signal = 0};
  return {.code = 0, .signal = WTERMSIG(wait_status)};
}

ExitStatus status_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = 0};
  return {.code = 0, .signal = info.si_status};
}

class Agent {
 public:
  Agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded, const Limits& inherited_limits)
      : config_(config),
        inherited_limits_(inherited_limits),
        log_(output_, log, host_),
        output_([this](const std::string& line) { log_.warning("output_lost", line); }),
        attempts_(
            config.logs, config.compatibility, config.job.id,
            [this](const std::string& line) { log_.warning("log_folder", line); },
            [&guarded](const std::string& folder) { leave_will(guarded.will_fd, folder); }),
        events_(
            {config.job.id, config.role, host_, config.job.node_ranks_given ? "static" : "c10d", config.program.name},
            writer_of_events()),
        inherited_(inherited_environment()),
        visible_gpus_(visible_gpus(config.gpus)),
        coordination_(config, incarnation_, [this](const std::string& line) { log_.warning("coordinator", line); }),
        core_({.job = config.job,
               .incarnation = incarnation_,
               .host = host_,
               .addresses = rendezvous::own_addresses(),
               .node_rank = config.node_rank,
               .role = config.role,
               .workers = config.workers,
               .python = config.program.prefix.size() > 1 ? config.program.path : "",
               .coordinator = coordination_.where(),
               .join_timeout = config.timeouts.join,
               .shutdown_timeout = config.shutdown_timeout}),
        signals_(io_, open_signals()),
        guardian_(io_, guarded.guardian_fd),
        cgroup_(guarded.cgroup),
        death_watch_(io_, config.workers, config.monitor_interval, callbacks_of_death_watch()) {
    log_.debug("cgroup", cgroup_.describe());
    if (!config.logs.event_file.empty()) output_.open_events(config.logs.event_file);
    if (config.virtual_local_rank && visible_gpus_) gpu_of_worker(*visible_gpus_, config.workers - 1);  // enough?
  }

  int run() {
    wait_for_signals();
    wait_for_guardian();
    preload();  // while the job comes together
    connect();
    handle(Tick{});  // deadlines count from here, not from the first news of the link
    io_.run();
    return *exit_code_;
  }

 private:
  struct Worker {
    pid_t pid = 0;
    int rank = 0;
    int round = 0;
    bool reaped = false;
    std::string incarnation;
    std::string error_file;

    bool is_there() const { return pid != 0 && !reaped; }
  };

  // Of workers, under way.
  struct Start {
    int round = 0;  // a newer one may be told of meanwhile
    rendezvous::Assignment assignment;
    std::vector<WorkerCommand> commands = {};  // empty: waits for the warm parent
    std::vector<Descriptor> files = {};        // what the commands name
    bool told_to_stop = false;
  };

  // Removed by whoever outlives this process, if it is killed.
  static void leave_will(int fd, const std::string& folder) {
    if (write(fd, folder.data(), folder.size()) < 0) return;  // then it is left behind
  }

  // None: nobody reads them.
  std::function<void(std::string)> writer_of_events() {
    if (!config_.logs.events_on_stderr && config_.logs.event_file.empty()) return nullptr;
    return [this](std::string line) {
      if (config_.logs.events_on_stderr) output_.write_line(Console::Stderr, line);
      output_.write_event(std::move(line));
    };
  }

  // ---- events ----

  static int open_signals() {
    const sigset_t set = managed_signals();  // blocked since before the first thread
    const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) throw Error(ErrorCode::System, std::string("cannot open a signalfd: ") + strerror(errno));
    return fd;
  }

  void wait_for_signals() {
    signals_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
      if (error) return;
      signalfd_siginfo info;
      while (read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
        on_signal(static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid));
      }
      if (!exit_code_) wait_for_signals();
    });
  }

  void on_signal(int signal, pid_t sender) {
    if (signal == SIGCHLD) return reap();
    if (std::find(config_.stop_signals.begin(), config_.stop_signals.end(), signal) != config_.stop_signals.end()) {
      if (!stop_.came_the_other_way(signal, sender == getppid())) handle(StopSignal{signal});
      return;
    }
    if (signal == SIGTSTP) return handle(Suspend{});
    if (signal == SIGCONT) return handle(Resume{});
    if (signal == SIGWINCH) output_.resize();
    if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGWINCH) {
      // Passed on to the programs themselves, not to what they have started: their handlers are the ones meant.
      for (const Worker& worker : workers_) {
        if (worker.is_there()) kill(worker.pid, signal);
      }
    }
  }

  void wait_for_guardian() {
    guardian_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
      if (!error) handle(GuardianGone{});
    });
  }

  std::string name_of(const Worker& worker) const {
    return "worker " + std::to_string(&worker - workers_.data()) + " (pid " + std::to_string(worker.pid) + ")";
  }

  DeathWatch::Callbacks callbacks_of_death_watch() {
    DeathWatch::Callbacks callbacks;
    callbacks.dying = [this](int local_rank, int wait_status) { on_worker_dying(local_rank, status_of(wait_status)); };
    callbacks.large = [this](int local_rank) {
      const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
      log_.debug("worker_large",
                 name_of(worker) + " has much memory and shows no liveness word: looked at every " +
                     std::to_string(config_.monitor_interval.count()) + " ms",
                 worker.rank);
    };
    return callbacks;
  }

  void on_worker_dying(int local_rank, ExitStatus ends_so) {
    const Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
    log_.debug("worker_dying", name_of(worker) + " " + describe(ends_so) + "; its memory is not taken back yet",
               worker.rank);
    handle(WorkerDying{local_rank, ends_so, now(), exiting_workers()});
  }

  void connect() {
    rendezvous::LinkClient::Callbacks callbacks;
    callbacks.on_up = [this](const std::string& coordinator_address) {
      master_addr_ = coordination_.master_addr(coordinator_address);
      handle(LinkUp{});
    };
    callbacks.on_message = [this](rendezvous::Directive directive) {
      std::vector<int> exiting;
      if (directive.kind == rendezvous::Directive::Kind::Stop) exiting = exiting_workers();
      handle(DirectiveArrived{std::move(directive), std::move(exiting)});
    };
    callbacks.on_heartbeat = [this] { handle(BeatArrived{}); };
    callbacks.on_down = [this](const std::string& why) { handle(LinkDown{why}); };
    callbacks.on_unreachable = [this](const std::string& why) {
      const bool never_linked = master_addr_.empty();
      if (never_linked && coordination_.coordinate_instead()) return connect();
      handle(LinkFailed{why});
    };
    callbacks.on_refused = [this](const std::string& why) { handle(LinkRefused{why}); };
    link_ = coordination_.link(io_, std::move(callbacks));
    link_->start();
  }

  void preload() {
    if (config_.preload.empty()) return;
    WarmParent::Callbacks callbacks;
    callbacks.on_ready = [this](const std::string& modules, std::chrono::milliseconds took) {
      log_.info("preload", "imported " + modules + " in " + std::to_string(took.count()) + " ms");
      if (start_) start_workers();
    };
    callbacks.on_forked = [this](Spawned spawned) { workers_started(std::move(spawned)); };
    callbacks.on_lost = [this](const std::string& why) {
      log_.warning("preload", "--preload " + config_.preload + ": " + why + "; workers are started without it");
      if (start_) start_workers();
    };
    try {
      warm_parent_.emplace(io_, config_, node_environment(config_, inherited_, visible_gpus_), inherited_limits_,
                           std::move(callbacks));
    } catch (const Error& error) {
      log_.warning("preload", std::string(error.what()) + "; workers are started without it");
    }
  }

  // Local ranks of those that run no more, though they are not reaped yet.
  std::vector<int> exiting_workers() const {
    std::vector<int> exiting;
    for (const Worker& worker : workers_) {
      if (worker.is_there() && is_exiting(worker.pid)) exiting.push_back(static_cast<int>(&worker - workers_.data()));
    }
    return exiting;
  }

  // Whoever has died: workers, and what dead workers left behind.
  void reap() {
    while (true) {
      siginfo_t info = {};
      // WNOWAIT: a zombie keeps its pid, so its process group can be killed before the number is free again.
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
      const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                       [&](const Worker& w) { return w.pid == info.si_pid && !w.reaped; });
      if (worker != workers_.end()) {
        kill(-info.si_pid, SIGKILL);
        cgroup_.kill_worker(worker->round, static_cast<int>(&*worker - workers_.data()));
      }
      waitpid(info.si_pid, nullptr, 0);
      if (worker != workers_.end()) {
        on_worker_exit(*worker, status_of(info));
      } else if (warm_parent_) {
        warm_parent_->note_reaped(info.si_pid, status_of(info));
      }
    }
    if (clearing_) {
      clear_descendants();
    } else {
      kill_leftovers();
    }
  }

  void on_worker_exit(Worker& worker, ExitStatus status) {
    worker.reaped = true;
    WorkerExited event;
    event.local_rank = static_cast<int>(&worker - workers_.data());
    death_watch_.forget(event.local_rank);
    event.time = now();
    if (const auto failure = spawned_->exec_failure(event.local_rank)) {
      event.message = why_it_never_ran(*failure);
      status = {.code = failure->error == ENOENT ? 127 : 126, .signal = 0};
    }
    event.status = status;
    if (status.signal == SIGKILL) event.out_of_memory = oom_.explain(worker.pid);
    if (!status.success()) event.exiting = exiting_workers();
    log_.info("worker_exited", name_of(worker) + " " + describe(status), worker.rank);
    handle(event);
  }

  std::string why_it_never_ran(const ExecFailure& failure) const {
    if (failure.step == ExecFailure::Step::Execute) {
      return "cannot execute " + config_.program.path + ": " + strerror(failure.error);
    }
    const WorkerBinding& binding = config_.bindings[static_cast<std::size_t>(failure.index)];
    return "cannot be bound to CPUs " + to_cpu_list(binding.cpus) + ": " + strerror(failure.error) +
           " (were they taken away since ddprun started?)";
  }

  // Where there is no control group: descendants that had left a dead worker's process group are children of this
  // subreaper now, next to what living workers have orphaned: the inherited incarnation tells whose they are. One that
  // is born meanwhile becomes our child when its parent dies, and that death brings us here again.
  void kill_leftovers() {
    const auto is_reaped = [](const Worker& w) { return w.reaped; };
    if (std::none_of(workers_.begin(), workers_.end(), is_reaped)) return;
    if (std::all_of(workers_.begin(), workers_.end(), is_reaped))
      return;  // then everything goes, see clear_descendants
    for (const pid_t child : children_of_self()) {
      const auto is_living = [&](const Worker& w) { return !w.reaped && w.pid == child; };
      if (std::any_of(workers_.begin(), workers_.end(), is_living)) continue;
      const bool is_leftover = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
        return w.reaped && was_started_with(child, contract::kIncarnation, w.incarnation);
      });
      if (is_leftover) signal_family(child, SIGKILL);
    }
  }

  void handle(const AgentEvent& event) {
    std::vector<AgentAction> actions;
    core_.step(std::chrono::steady_clock::now(), event, actions);
    for (const AgentAction& action : actions) {
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
    set_timer();
  }

  void set_timer() {
    const auto wake_at = core_.wake_at();
    if (wake_at == timer_set_to_) return;
    timer_set_to_ = wake_at;
    timer_.cancel();
    if (!wake_at) return;
    timer_.expires_at(*wake_at);
    timer_.async_wait([this](const auto& error) {
      if (error) return;
      timer_set_to_.reset();
      handle(Tick{});
    });
  }

  // ---- actions ----

  void carry_out(const StartWorkers& action) {
    log_.set_round(core_.state().round);
    oom_.start();
    start_ = Start{.round = core_.state().round, .assignment = action.assignment};
    if (start_->assignment.master_addr.empty()) start_->assignment.master_addr = master_addr_;
    events_.round(start_->assignment);
    if (warm_parent_ && warm_parent_->is_importing()) {
      log_.info("preload", "the workers start once --preload " + config_.preload + " is done");
      return;
    }
    start_workers();
  }

  // As the warm parent's children if there is one, else by exec; also if it is lost while it is at it.
  void start_workers() {
    if (start_->told_to_stop) return never_started();
    try {
      if (start_->commands.empty()) prepare_workers();
      if (warm_parent_ && warm_parent_->is_ready()) return warm_parent_->fork(start_->commands);
      workers_started(spawn(std::move(start_->commands)));
    } catch (const Error& error) {
      start_.reset();
      workers_.clear();
      output_.end_round(kDrainDeadline);
      handle(SpawnFailed{error.what(), now()});
    }
  }

  void never_started() {
    start_.reset();
    workers_.clear();
    output_.end_round(kDrainDeadline);
    handle(NeverStarted{});
  }

  void prepare_workers() {
    const bool stdin_is_terminal = isatty(STDIN_FILENO) != 0;
    workers_.assign(static_cast<std::size_t>(config_.workers), {});
    error_files_.clear();
    const int attempt = start_->round - 1;
    filter_lines(attempt);
    for (int i = 0; i < config_.workers; ++i) {
      Worker& worker = workers_[static_cast<std::size_t>(i)];
      worker.rank = start_->assignment.base_rank + i;
      worker.round = start_->round;
      worker.incarnation = rendezvous::random_id();
      worker.error_file = attempts_.error_file(attempt, i);
      const std::string folder = attempts_.of_worker(attempt, i);
      const StreamOwner owner = {config_.role, host_, i, worker.rank, config_.workers, folder};
      for (const Console console : {Console::Stdout, Console::Stderr}) {
        start_->files.emplace_back(output_.open_stream(route_stream(config_.logs, owner, console)));
      }
      WorkerCommand command;
      command.path = config_.program.path;
      command.arguments = worker_command(config_, i);
      const WorkerPlace place = {i, worker.incarnation, worker.error_file, death_watch_.liveness_word_of(i)};
      for (const auto& [name, value] :
           worker_environment(config_, start_->assignment, place, inherited_, visible_gpus_)) {
        command.environment.push_back(name + "=" + value);
      }
      command.stdin_fd = config_.stdin_reader.reads(worker.rank, stdin_is_terminal) ? STDIN_FILENO : -1;
      command.stdout_fd = start_->files.end()[-2].get();
      command.stderr_fd = start_->files.end()[-1].get();
      command.limits = inherited_limits_;
      if (!config_.bindings.empty()) command.cpus = to_mask(config_.bindings[static_cast<std::size_t>(i)].cpus);
      command.cgroup_fd = start_->files.emplace_back(cgroup_.open_worker(worker.round, i)).get();
      start_->commands.push_back(std::move(command));
    }
    output_.begin_round();
  }

  void workers_started(Spawned spawned) {
    spawned_.emplace(std::move(spawned));
    for (int i = 0; i < config_.workers; ++i) {
      const auto index = static_cast<std::size_t>(i);
      workers_[index].pid = spawned_->pids()[index];
      death_watch_.watch(i, workers_[index].pid);
      events_.worker_started(i, workers_[index].pid);
    }
    log_.info("workers_started", "round " + std::to_string(start_->round) + ": started " +
                                     std::to_string(workers_.size()) + " workers of " + config_.program.name +
                                     "; store at " + start_->assignment.master_addr + ":" +
                                     std::to_string(start_->assignment.master_port));
    start_.reset();
    handle(WorkersStarted{{spawned_->pids().begin(), spawned_->pids().end()}});
  }

  // Whether the workers are still to come, whom an action therefore does not reach.
  bool stops_the_start() {
    if (!start_) return false;
    start_->told_to_stop = true;
    if (start_->commands.empty()) never_started();  // else they come in a moment, and the core says it again
    return true;
  }

  void filter_lines(int attempt) {
    const LogConfig& logs = config_.logs;
    if (logs.stdout_filters.empty() && logs.stderr_filters.empty()) return;
    const std::string folder = attempts_.of_attempt(attempt);
    if (folder.empty()) return;
    if (!logs.stdout_filters.empty()) {
      output_.filter_lines(Console::Stdout, folder + "/filtered_stdout.log", logs.stdout_filters);
    }
    if (!logs.stderr_filters.empty()) {
      output_.filter_lines(Console::Stderr, folder + "/filtered_stderr.log", logs.stderr_filters);
    }
  }

  void carry_out(const SignalWorkers& action) {
    if (stops_the_start()) return;
    for (const Worker& worker : workers_) {
      if (!worker.is_there()) continue;
      kill(-worker.pid, SIGCONT);  // a stopped process would not hear it; first, since it takes back a SIGTSTP
      // One that was forked a moment ago may lead no group yet; for itself the signal waits until it has been executed.
      if (kill(-worker.pid, action.signal) != 0) kill(worker.pid, action.signal);
    }
  }

  void carry_out(const SuspendWorkers&) {
    // Not their process groups only: a job inside the job is in sessions of its own. SIGTSTP would not do, since it
    // stops nobody whose session has no shell. Again for what the first were starting meanwhile.
    for (int pass = 0; pass < 2; ++pass) signal_descendants(SIGSTOP);
  }

  void carry_out(const ResumeWorkers&) { signal_descendants(SIGCONT); }

  void carry_out(const KillDescendants&) {
    if (!stops_the_start()) kill_descendants();
  }

  void kill_descendants() {
    cgroup_.kill();
    signal_descendants(SIGKILL, not_the_jobs());
  }

  // Children that live through the rounds.
  std::vector<pid_t> not_the_jobs() const {
    return warm_parent_ && warm_parent_->pid() != 0 ? std::vector<pid_t>{warm_parent_->pid()} : std::vector<pid_t>{};
  }

  void carry_out(const ClearDescendants&) {
    clearing_ = true;
    clear_descendants();
  }

  void clear_descendants() {
    siginfo_t info = {};
    int waited;
    while ((waited = waitid(P_ALL, 0, &info, WEXITED | WNOHANG)) == 0 && info.si_pid != 0) {
      if (warm_parent_) warm_parent_->note_reaped(info.si_pid, status_of(info));
    }
    const bool is_childless = waited < 0 && errno == ECHILD;
    if (is_childless || children_of_self() == not_the_jobs()) {
      clearing_ = false;
      sweep_timer_.cancel();
      all_gone();
      return;
    }
    kill_descendants();
    // Their deaths wake us; a process born while we looked does not.
    sweep_timer_.expires_after(kSweepAgain);
    sweep_timer_.async_wait([this](const auto& error) {
      if (!error && clearing_) clear_descendants();
    });
  }

  void all_gone() {
    auto last_words = output_.end_round(kDrainDeadline);
    last_words.resize(workers_.size());
    AllGone event;
    event.words.resize(workers_.size());
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      ErrorFile error = read_error_file(workers_[i].error_file);
      const std::string recorder = contract::flight_recorder_file(workers_[i].error_file, workers_[i].rank);
      const bool has_recorder = !workers_[i].error_file.empty() && access(recorder.c_str(), R_OK) == 0;
      event.words[i] = {std::move(error.text), std::move(last_words[i].lines), std::move(error.record),
                        std::move(last_words[i].log), has_recorder ? recorder : ""};
      if (!event.words[i].message.empty()) error_files_[workers_[i].rank] = workers_[i].error_file;
      cgroup_.remove_worker(workers_[i].round, static_cast<int>(i));
    }
    record_ends(event.words);
    workers_.clear();
    handle(event);
  }

  void record_ends(const std::vector<WorkerWords>& words) {
    const std::vector<rendezvous::WorkerFailure>& failures = core_.state().failures;
    for (int i = 0; i < config_.workers; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const auto failed = std::find_if(failures.begin(), failures.end(),
                                       [&](const rendezvous::WorkerFailure& f) { return f.local_rank == i; });
      std::optional<rendezvous::WorkerFailure> failure;
      if (failed != failures.end()) {
        failure = *failed;
        if (failure->message.empty()) failure->message = words[index].message;
      }
      events_.worker_ended(i, workers_[index].pid, failure ? &*failure : nullptr);
    }
    events_.round_ended();
  }

  void carry_out(const Report& action) {
    for (const rendezvous::WorkerFailure& failure : action.state.failures) {
      if (!failure.flight_recorder.empty()) attempts_.keep();  // the job's report names it
    }
    link_->send(action.state);
  }

  void carry_out(const SendBeat&) { link_->send(rendezvous::Heartbeat{}); }

  void carry_out(const Reconnect& action) { link_->reconnect(action.why); }

  void carry_out(const LogLine& action) { log_.warning("notice", action.text); }

  void carry_out(const Leave& action) {
    exit_code_ = action.exit_code;
    if (warm_parent_) warm_parent_->end();
    const rendezvous::Directive& why = action.directive;
    if (why.cause) {
      report_failure(*why.cause, why.failures);
    } else if (action.exit_code != 0) {
      log_.error("job_stopped", config_.program.name + " stopped: " + why.reason);
    } else {
      log_.info("job_succeeded", why.reason);
    }
    for (const int pid : action.unkillable) {
      if (pid != 0) log_.error("unkillable", "process " + std::to_string(pid) + " could not be killed");
    }
    tell_parent(action.exit_code, why);
    if (config_.compatibility == CompatibilityMode::Torchrun) tell_as_torchrun(action);
    events_.agent_ended(action.exit_code == 0 ? "" : why.cause ? describe(*why.cause) : why.reason);
    link_->stop();
    timer_.cancel();
    sweep_timer_.cancel();
    signals_.cancel();
    guardian_.cancel();
    death_watch_.stop();
  }

  void report_failure(const rendezvous::WorkerFailure& cause, const std::vector<rendezvous::WorkerFailure>& all) {
    std::vector<std::string> lines = failure_report(config_.program.name, cause, all);
    if (log_.is_for_terminal()) lines = coloured(std::move(lines));
    std::string report;
    for (const std::string& line : lines) report += (report.empty() ? "" : "\n") + line;
    log_.error("job_failed", report, cause.rank, failure_details(config_.program.name, cause, all));
  }

  // The launcher that started this ddprun, if one did.
  void tell_parent(int exit_code, const rendezvous::Directive& why) {
    const auto path = inherited_.find(contract::kErrorFile);
    if (exit_code == 0 || path == inherited_.end() || path->second.empty()) return;
    const std::string record =
        why.cause ? record_for_parent(*why.cause)
                  : record_for_parent(config_.program.name + " stopped: " + why.reason, std::time(nullptr));
    if (write_error_file(path->second, record)) return;
    log_.warning("error_file",
                 "cannot write " + path->second + " for the launcher that started ddprun: " + strerror(errno));
  }

  void tell_as_torchrun(const Leave& action) {
    const rendezvous::Directive& why = action.directive;
    if (why.cause) {
      if (!error_files_.empty()) attempts_.keep();
      output_.write_line(Console::Stderr, torchrun_summary(config_.program, *why.cause, why.failures, error_files_));
    } else if (action.exit_code > 128) {
      output_.write_line(Console::Stderr, torchrun_signal_summary(config_.launcher_pid, action.exit_code - 128));
    }
  }

  const LaunchConfig& config_;
  const std::string incarnation_ = rendezvous::random_id();
  const Limits inherited_limits_;
  const std::string host_ = host_name();
  Log log_;  // writes to output_, whose last warnings go to it: so it lives longer
  Output output_;
  AttemptFolder attempts_;
  EventLog events_;
  Environment inherited_;
  std::optional<std::string> visible_gpus_;
  Coordination coordination_;
  AgentCore core_;

  asio::io_context io_{1};
  asio::posix::stream_descriptor signals_;
  asio::posix::stream_descriptor guardian_;
  const JobCgroup cgroup_;
  asio::steady_timer timer_{io_};
  asio::steady_timer sweep_timer_{io_};
  DoubleSignal stop_;
  std::optional<TimePoint> timer_set_to_;
  std::unique_ptr<rendezvous::LinkClient> link_;
  std::string master_addr_;  // of workers, if it is not the same on all nodes

  std::optional<WarmParent> warm_parent_;
  std::optional<Start> start_;
  std::vector<Worker> workers_;             // of the current round, by local rank
  std::map<int, std::string> error_files_;  // by rank, of those that wrote one
  DeathWatch death_watch_;
  std::optional<Spawned> spawned_;
  OomWatch oom_;
  bool clearing_ = false;
  std::optional<int> exit_code_;
};

}  // namespace

int run_agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded) {
  signal(SIGPIPE, SIG_IGN);  // a console that goes away ends the output, not the job
  const Limits inherited = raise_limits();
  // Should this agent host the store and the coordinator: one of each worker and agent.
  const auto connections = static_cast<rlim_t>(config.job.max_nodes) * static_cast<rlim_t>(config.workers + 1);
  reserve_files(config.workers, config.logs.writes_logs(), connections);
  Agent agent(config, log, guarded, inherited);
  return agent.run();
}

}  // namespace ddp::launcher
