// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/agent.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/job_end.hpp"
#include "launcher/agent/job_looks.hpp"
#include "launcher/agent/local_service.hpp"
#include "launcher/agent/node_output.hpp"
#include "launcher/agent/round_processes.hpp"
#include "launcher/agent/trace_feed.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/coordination.hpp"
#include "launcher/diagnosis/hang_watch.hpp"
#include "launcher/diagnosis/nodes/hang_judge.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "launcher/diagnosis/tell_stacks.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/local/job_answers.hpp"
#include "launcher/local/page/page_server.hpp"
#include "launcher/output/log.hpp"
#include "launcher/output/stream_route.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/report/issue_report.hpp"
#include "launcher/report/node_facts.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/coordinator/core/roster.hpp"
#include "rendezvous/membership/secret.hpp"
#include "rendezvous/net/addresses/own_address.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/boot_timer.hpp"
#include "rendezvous/net/connection_owner.hpp"
#include "rendezvous/net/core_driver.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;

namespace {

constexpr std::chrono::milliseconds kClaimedWithin{5000};    // by another node, and known here, once nodes may claim
constexpr std::chrono::milliseconds kUpdateWithin{1000};     // time for an update of kept memory before a stop signal
constexpr std::chrono::milliseconds kBetweenUpdateLooks{1};  // meanwhile

AgentConfig core_config(const LaunchConfig& config, const std::string& incarnation, const std::string& host,
                        const Coordination& coordination, int life) {
  const auto& timeouts = config.timeouts;
  // The coordinator of a later agent was there a moment ago.
  const bool is_first = life == 1 || timeouts.lost.count() == 0;
  return {.job = config.job,
          .incarnation = incarnation,
          .host = host,
          .addresses = rendezvous::own_addresses(),
          .node_rank = config.node_rank,
          .wanted_rank = config.wanted_rank,
          .role = config.role,
          .workers = config.workers,
          .python = config.program.prefix.size() > 1 ? config.program.path : "",
          .coordinator = coordination.where(),
          .advice = config.to_head ? "; --master-addr names another address of the first host" : "",
          .is_beside_coordinator = coordination.is_beside(),
          .endpoint_host = config.master_addr,
          .join_timeout = is_first ? timeouts.join : std::min(timeouts.join, timeouts.lost),
          .named_timeout =
              config.etcd ? rendezvous::acts_within(timeouts.lost) + kClaimedWithin : std::chrono::milliseconds(0),
          .shutdown_timeout = config.shutdown_timeout,
          .takes_stacks = config.stacks_within.count() > 0,
          .keeps_memory = config.keep_memory != KeepMemory::No,
          .on_hang = config.on_hang};
}

class Agent {
 public:
  Agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded, LeaveNotice& leave_notice,
        Sidecars* sidecars, const Limits& inherited_limits)
      : config_(config),
        leave_notice_(leave_notice),
        deadman_(guarded.deadman),
        out_(config, log, host_, guarded),
        coordination_(config, incarnation_, sidecars,
                      {.warning = [this](const std::string& line) { out_.log.warning("coordinator", line); },
                       .info = [this](const std::string& line) { out_.log.info("coordinator", line); },
                       .record = [this](const rendezvous::RecordNode& node,
                                        const std::string& proof) { out_.record(node, proof); }}),
        core_(core_config(config, incarnation_, host_, coordination_, guarded.life)),
        driver_(io_, core_,
                [this](const AgentAction& action) { std::visit([this](const auto& a) { carry_out(a); }, action); }),
        signals_(io_, open_signals()),
        guardian_(io_, guarded.guardian_fd),
        processes_(io_, config, host_, inherited_limits, guarded, core_.state(), out_,
                   [this](const AgentEvent& event) { on_process(event); }),
        update_timer_(io_),
        local_(io_, config, host_, incarnation_, guarded, out_, processes_, core_,
               {.handle = [this](const AgentEvent& event) { driver_.handle(event); },
                .call_memory = [this](int local_rank) { return give_call_memory(local_rank); },
                .look = [this](const std::string& what) { return looks_.begin(what); }}),
        looks_(io_, incarnation_, local_, processes_,
               {.ask = [this](const rendezvous::LookRequest& request) { return ask_coordinator(request); },
                .answer = [this](const rendezvous::LookAnswer& answer) { link_->send(answer); },
                .obey = [this](const rendezvous::LookRequest& order) { return obey(order); }}),
        stack_helper_(io_),
        hang_watch_(io_, config.hang_timeout,
                    {.workers = [this] { return processes_.workers_with_stacks(); },
                     .step_at = [this](int rank) { return local_.step_at(rank); },
                     .output = [this] { return out_.output.bytes_read(); },
                     .link = [this] { return core_.link_delay(); }},
                    config.job.max_nodes == 1 ? own_verdicts() : verdicts_of_all_nodes()),
        hang_judge_(io_, config.hang_timeout, host_,
                    {.ask = [this](const std::string& what, const std::string& text,
                                   const HangJudge::Answered& answered) { looks_.ask(what, text, answered); },
                     .stillness = [this] { return hang_watch_.stillness(); }},
                    out_.log, [this](const Hang& hang) { act_on(hang); }) {}

  int run() {
    wait_for_signals();
    wait_for_guardian();
    processes_.preload();  // while the job comes together
    coordination_.read_lines(io_, {.moved = [this](const std::string& why) { link_anew(why); },
                                   .trouble =
                                       [this](const std::string& why) {
                                         if (!master_addr_.empty() && !why.empty()) {
                                           out_.log.warning("coordinator", why);
                                         }
                                         driver_.handle(LinkFailed{why, true});
                                       },
                                   .refused =
                                       [this](const std::string& why) {
                                         if (master_addr_.empty()) return driver_.handle(LinkRefused{why});
                                         driver_.handle(LinkFailed{why, true});
                                       }});
    connect();
    driver_.handle(Tick{});  // deadlines count from here, not from the first event of the link
    io_.run();
    return *exit_code_;
  }

 private:
  // ---- Events ----

  static int open_signals() {
    const sigset_t set = managed_signals();  // blocked since before the first thread
    const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd >= 0) return fd;
    rendezvous::system_error("cannot open a signalfd");
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
    if (signal == SIGCHLD) return processes_.reap();
    if (signal == kHeadIsGone && config_.is_told_elsewhere) return driver_.handle(HeadGone{});
    if (std::find(config_.stop_signals.begin(), config_.stop_signals.end(), signal) != config_.stop_signals.end()) {
      if (!stop_.came_the_other_way(signal, sender == getppid())) driver_.handle(StopSignal{signal});
      return;
    }
    if (signal == SIGTSTP) return driver_.handle(Suspend{});
    if (signal == SIGCONT) return driver_.handle(Suspend{.is_over = true});
    if (signal == SIGWINCH) out_.output.resize();
    if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGWINCH) pass_on(signal, sender);
  }

  // Slurm that finds the processes of a step as descendants (proctrack/linuxproc) signals each of them, workers too.
  void pass_on(int signal, pid_t sender) {
    if (passed_on_.came_the_other_way(signal, sender == getppid()) || name_of(sender) == "slurmstepd") return;
    processes_.pass_on(signal);
  }

  // Returns the memory in which a worker records its calls, to be sent to it; -1 if it gets none.
  int give_call_memory(int local_rank) {
    const rendezvous::Descriptor* const memory = processes_.give_call_memory(local_rank);
    if (memory == nullptr) return -1;
    if (trace_) trace_->read_from(local_rank, *memory);
    return memory->get();
  }

  void on_process(const AgentEvent& event) {
    if (std::holds_alternative<WorkerDying>(event)) {
      note_failure();
    } else if (const auto* exited = std::get_if<WorkerExited>(&event)) {
      if (!exited->status.success()) note_failure();
      if (exited->status.success()) {
        hang_watch_.note_end(base_rank_ + exited->local_rank, rendezvous::describe(exited->status));
      }
    } else if (std::holds_alternative<WorkersStarted>(event)) {
      hang_watch_.begin();
    }
    if (trace_) trace_->note(event);
    driver_.handle(event);
  }

  void note_failure() {
    local_.note_failure();
    end_hang_watch();
  }

  HangWatch::Callbacks own_verdicts() {
    return {.stands_still =
                [this](const Hang& hang) {
                  tell_hang(hang, out_.log);
                  act_on(hang);
                },
            .goes_on = [this] { out_.log.warning("hang_over", "the workers make progress again"); }};
  }

  HangWatch::Callbacks verdicts_of_all_nodes() {
    return {.stands_still = {},
            .goes_on = [this] { hang_judge_.goes_on(); },
            .proof_holds = [this] { hang_judge_.stands_still(); }};
  }

  void act_on(const Hang& hang) {
    const std::string why = hang.since + ": " + hang.culprit.words;
    stacks_ = hang.stacks;
    if (trace_) trace_->note("no progress: " + why);
    driver_.handle(HangFound{why});
  }

  void wait_for_guardian() {
    guardian_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
      if (!error) driver_.handle(GuardianGone{});
    });
  }

  void connect() {
    rendezvous::LinkClient::Callbacks callbacks;
    callbacks.on_up = [this](const std::string& coordinator_address) {
      is_linked_ = true;
      coordinator_address_ = coordinator_address;
      master_addr_ = coordination_.master_addr(coordinator_address);
      open_what_shows_the_job(coordinator_address.empty());
      driver_.handle(LinkUp{coordinator_address.empty() ? coordination_.own_endpoint() : coordinator_address,
                            coordinator_address.empty()});
    };
    callbacks.on_message = [this](rendezvous::Directive directive) {
      can_look_ = directive.can_look;
      std::vector<int> exiting;
      if (directive.kind == rendezvous::Directive::Kind::Stop) {
        exiting = processes_.exiting_workers();
        rounds_.end(directive.reason);
      }
      if (trace_) {
        trace_->note(directive);
        if (can_look_ && !trace_->coordinates() && !std::exchange(has_asked_for_clock_, true)) ask_for_clock();
      }
      driver_.handle(DirectiveArrived{std::move(directive), std::move(exiting)});
      coordination_.note(core_.state(), node_rank_);
    };
    callbacks.on_heartbeat = [this] { driver_.handle(BeatArrived{}); };
    callbacks.on_down = [this](const std::string& why) { unlinked(why); };
    callbacks.on_look_request = [this](const rendezvous::LookRequest& request) { looks_.on_request(request); };
    callbacks.on_look_answer = [this](rendezvous::LookAnswer answer) { looks_.on_answer(std::move(answer)); };
    callbacks.on_look_end = [this](rendezvous::LookEnd end) { looks_.on_end(std::move(end)); };
    callbacks.on_clock = [this](rendezvous::ClockReading answer) {
      if (trace_ && trace_->round_trip(answer)) ask_for_clock();
    };
    callbacks.on_unreachable = [this](const std::string& why) {
      const bool never_linked = master_addr_.empty();
      if (never_linked && coordination_.look_again()) return connect();
      coordination_.ask_again();
      driver_.handle(LinkFailed{why + coordination_.taken_by()});
    };
    callbacks.on_refused = [this](const std::string& why) {
      driver_.handle(LinkRefused{why + coordination_.taken_by()});
    };
    link_ = coordination_.link(io_, std::move(callbacks));
    if (coordination_.is_known()) link_->start();
  }

  void unlinked(const std::string& why) {
    can_look_ = is_linked_ = false;
    driver_.handle(LinkDown{why});
  }

  // Another node coordinates. The client ends its link without a word.
  void link_anew(const std::string& why) {
    if (exit_code_) return;
    driver_.handle(CoordinatorNamed{});
    link_->stop();
    if (is_linked_) unlinked(why);
    if (!exit_code_) connect();
  }

  // The first link says who coordinates.
  void open_what_shows_the_job(bool coordinates) {
    if (!config_.trace_file.empty() && !trace_) trace_.emplace(config_, host_, core_.state(), coordinates, out_.log);
    if (config_.page && coordinates && !page_) open_page();
  }

  // Opens the page of the job (--serve). A port that is taken costs the job nothing but its page. Throws
  // rendezvous::Error if the token cannot be used, since then the page would be for other people than was meant.
  void open_page() {
    PageServer::Settings settings{.address = config_.page->address, .port = config_.page->port, .rules = {}};
    settings.rules.any_user = config_.any_user;
    settings.rules.own_name = host_;
    const std::string& token_file = config_.page->token_file;
    if (!token_file.empty()) settings.rules.token = rendezvous::read_secret_file(token_file);
    try {
      page_ = std::make_unique<PageServer>(io_, std::move(settings), [this] { return looks_.begin("state"); });
      out_.log.warning("page", "the page of this job is at " + page_->url());
    } catch (const rendezvous::Error& error) {
      out_.log.warning("page", std::string("the job has no page: ") + error.what());
    }
  }

  // The last operations of a worker are in its file if it has written one, else in the memory that it shares.
  IssueReport::Node own_report() const {
    IssueReport::Node node = {
        .host = host_,
        .facts = node_facts(config_, host_).str(),
        .error = {},
        .rounds = rounds_.lines(),
        .recorders = recorders_in(out_.attempts.root(), core_.state().round - 1, config_.workers)};
    for (auto& [rank, json] : processes_.flight_records()) add_recorder(node, {rank, std::move(json)});
    return node;
  }

  // Answers what somebody who looks at the job asks of all nodes, or has ordered.
  std::string obey(const rendezvous::LookRequest& request) {
    const std::string& order = request.what;
    if (order == kStillnessQuestion) return hang_judge_.answer_stillness(request.text);
    if (order == kVerdictOrder) return hang_judge_.take_verdict(request.text);
    if (order == kReportQuestion) return node_report_json(own_report());
    if (order == rendezvous::kOwnerQuestion) {
      return rendezvous::owner_answer(connection_users_, request.text, link_->ends());
    }
    if (order == kStopOrder) {
      asio::post(io_, [this] { driver_.handle(StopSignal{SIGTERM}); });  // the answer goes first
      return node_done(order);
    }
    const auto signal = signal_of_order(order);
    if (!signal) return "";
    const std::vector<int> ranks = processes_.ranks_without_handler(*signal);
    if (!ranks.empty()) return signal_not_sent(ranks, *signal);
    processes_.pass_on(*signal);
    return node_done(order);
  }

  bool ask_coordinator(const rendezvous::LookRequest& request) {
    if (can_look_) link_->send(request);
    return can_look_;
  }

  // ---- Actions ----

  void carry_out(const StartWorkers& action) {
    deadman_.await_keeper();
    stacks_.clear();
    processes_.start(begin_round(action.assignment, false), local_.socket());
  }

  void carry_out(const StartMissing& action) {
    processes_.start_missing(begin_round(action.assignment, true), action.local_ranks);
    hang_watch_.begin();
  }

  rendezvous::Assignment begin_round(rendezvous::Assignment assignment, bool some_live_on) {
    if (trace_) trace_->begin_round(assignment, some_live_on);
    out_.log.set_round(core_.state().round);
    if (assignment.master_addr.empty()) assignment.master_addr = master_addr_;
    looks_.forget_volunteered();
    rounds_.begin(core_.state().round, assignment.restart_count,
                  std::to_string(config_.workers) + " of " + std::to_string(assignment.world_size) +
                      " workers are here, from rank " + std::to_string(assignment.base_rank));
    base_rank_ = assignment.base_rank;
    node_rank_ = assignment.node_rank;
    hang_judge_.begin(assignment.node_rank);
    local_.begin_round(core_.state(), assignment);
    return assignment;
  }

  void carry_out(const RevokeRound&) {
    end_hang_watch();
    local_.revoke();  // first the page, so that a worker whose wait ends sees why
    processes_.end_connections();
  }
  void carry_out(const ReadWords& action) { processes_.read_words(action.local_ranks); }
  void carry_out(const SignalWorker& action) { processes_.stop_worker(action.local_rank, action.signal); }

  // A worker that is within an update of its kept memory finishes it first, so that some worker's memory is whole.
  // Where their stacks are wanted, they are taken first.
  void carry_out(const SignalWorkers& action) {
    end_diagnosis();
    local_.show_stop();
    const int signal = action.signal;
    const auto stop = [this, signal] { stop_after_updates(signal, std::chrono::steady_clock::now() + kUpdateWithin); };
    const auto workers =
        action.stacks == StacksUse::NotTaken ? std::vector<StackHelper::Worker>() : processes_.workers_with_stacks();
    if (workers.empty()) return stop();
    const bool is_logged = action.stacks == StacksUse::Logged;
    stack_helper_.take(workers, config_.stacks_within, [this, stop, is_logged](std::vector<WorkerStacks> stacks) {
      stacks_ = std::move(stacks);
      if (is_logged && !stacks_.empty()) tell_stacks(stacks_, out_.log);
      if (!is_logged && can_look_) looks_.volunteer(stacks_);
      stop();
    });
  }

  void end_hang_watch() {
    hang_watch_.end();
    hang_judge_.end();
  }

  void end_diagnosis() {
    end_hang_watch();
    stack_helper_.cancel();
    update_timer_.cancel();
  }

  void stop_after_updates(int signal, std::chrono::steady_clock::time_point until) {
    if (!local_.is_updating() || std::chrono::steady_clock::now() >= until) return processes_.stop(signal);
    update_timer_.expires_after(kBetweenUpdateLooks);
    update_timer_.async_wait([this, signal, until](const auto& error) {
      if (!error) stop_after_updates(signal, until);
    });
  }

  void carry_out(const SuspendWorkers& action) {
    processes_.suspend(action.is_over);
    if (action.is_over) return hang_watch_.resume();
    hang_watch_.suspend();
    hang_judge_.end();
  }
  void carry_out(const KillDescendants&) {
    end_diagnosis();
    processes_.kill();
  }
  void carry_out(const KillLeftovers& action) { processes_.kill_leftovers(action.local_rank, action.grace); }
  void carry_out(const ClearDescendants&) {
    end_diagnosis();  // all workers have exited
    processes_.clear();
  }

  void carry_out(const SendReport& action) {
    if (trace_ && action.state.left) trace_->end_own_part();
    local_.show(action.state);
    link_->send(action.state);
    leave_notice_.prepare(coordinator_address_, link_->coordinator_port(), action.state);
  }

  void carry_out(const SetDeadman& action) { deadman_.set(action.at); }
  void carry_out(const SendHeartbeat&) {
    link_->send(rendezvous::Heartbeat{});
    if (has_asked_for_clock_ && can_look_) ask_for_clock();
  }
  void ask_for_clock() { link_->send(rendezvous::ClockReading{.agent_ns = trace_clock_ns()}); }
  void carry_out(const Reconnect& action) { link_->reconnect(action.why); }
  void carry_out(const LogLine& action) {
    if (trace_) trace_->note(action.text);
    if (action.is_of_job && config_.is_told_elsewhere) return out_.log.info("notice", action.text);
    out_.log.warning("notice", action.text);
  }

  void carry_out(const Leave& action) {
    if (trace_) trace_->end_job();
    coordination_.note_left();
    exit_code_ = action.exit_code;
    leave_notice_.clear();
    processes_.end();
    const std::vector<WorkerStacks> of_others = looks_.volunteered();
    stacks_.insert(stacks_.end(), of_others.begin(), of_others.end());
    report_job_end(config_, action, processes_.last_round(), stacks_, own_report(), out_);
    // Nothing is left to wait for, so that run() returns.
    link_->stop();
    looks_.stop();
    if (page_) page_->stop();
    local_.stop();
    coordination_.stop_reading();
    end_diagnosis();
    signals_.cancel();
    guardian_.cancel();
  }

  const LaunchConfig& config_;
  LeaveNotice& leave_notice_;
  const Deadman& deadman_;
  const std::string incarnation_ = rendezvous::random_id();
  const std::string host_ = rendezvous::host_name();
  NodeOutput out_;
  Coordination coordination_;
  asio::io_context io_{1};
  AgentCore core_;
  // Its clock goes on while the machine is suspended, since the coordinator does.
  rendezvous::CoreDriver<AgentCore, AgentEvent, AgentAction, Tick, rendezvous::BootTimer> driver_;
  asio::posix::stream_descriptor signals_;
  asio::posix::stream_descriptor guardian_;
  RoundProcesses processes_;
  asio::steady_timer update_timer_;  // while workers that are to stop are within an update
  LocalService local_;
  JobLooks looks_;
  rendezvous::PeerUsers connection_users_;
  StackHelper stack_helper_;  // before a stop
  HangWatch hang_watch_;
  HangJudge hang_judge_;              // unused in a job of one node
  std::vector<WorkerStacks> stacks_;  // this node's, taken in the newest round; empty: none were
  std::optional<TraceFeed> trace_;
  bool has_asked_for_clock_ = false;
  std::unique_ptr<PageServer> page_;
  int base_rank_ = 0;   // rank of local rank 0 in the newest round
  int node_rank_ = -1;  // in the newest round; -1: this node had no place in any
  RoundHistory rounds_;
  DoubleSignal stop_, passed_on_;
  std::unique_ptr<rendezvous::LinkClient> link_;
  bool is_linked_ = false;
  bool can_look_ = false;            // the link is up, and the coordinator knows looks
  std::string coordinator_address_;  // numeric; empty if the coordinator is in this process
  std::string master_addr_;  // workers' MASTER_ADDR, if the nodes have none in common; empty until there is a link
  std::optional<int> exit_code_;
};

}  // namespace

int run_agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded, LeaveNotice& leave_notice,
              Sidecars* sidecars) {
  signal(SIGPIPE, SIG_IGN);  // a console that goes away ends the output, not the job
  const Limits inherited = raise_limits();
  // One connection from each worker where the store is in this process.
  const auto connections = sidecars ? 0 : static_cast<rlim_t>(config.workers + 1);
  reserve_files(config.workers, static_cast<rlim_t>(descriptors_of_streams(config.logs, config.workers)), connections,
                config.job.max_nodes);
  Agent agent(config, log, guarded, leave_notice, sidecars, inherited);
  return agent.run();
}

}  // namespace ddp::launcher
