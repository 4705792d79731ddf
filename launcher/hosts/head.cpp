// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/head.hpp"

#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "launcher/hosts/head_core.hpp"
#include "launcher/hosts/host_console.hpp"
#include "launcher/hosts/launch_agents.hpp"
#include "launcher/hosts/passed_variables.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/text/lines.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;
using rendezvous::Frame;
using rendezvous::FrameKind;

constexpr std::chrono::seconds kBeat{2};
constexpr std::chrono::seconds kConsoleMayTake{1};  // after a signal that ends the job
constexpr std::size_t kMostInHostsWords = 4096;     // bytes that a line of ddprun takes from a host

// The signals that the head reads instead of being ended or stopped by them. A SIGHUP that is ignored stays so.
sigset_t heads_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) sigaddset(&set, signal);
  struct sigaction hang_up = {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

std::string text_of_exit(std::string_view payload) {
  return "the exit code \"" + rendezvous::printable_line(payload) + "\"";
}

class Head {
 public:
  explicit Head(const HeadConfig& config)
      : config_(config),
        own_name_(rendezvous::host_name()),
        console_(names_of(config.hosts)),
        core_(settings(), Clock::now()),
        agents_(
            {.words = config.agent, .environment = own_environment(), .limits = raise_limits(), .own_name = own_name_},
            {.progressed = [this](std::size_t host) { core_.progressed(host, Clock::now()); },
             .frame = [this](std::size_t host, const Frame& frame) { on_frame(host, frame); },
             .refused = [this](std::size_t host, const std::string& why) { fail(host, why); },
             .ended = [this](std::size_t host, const std::string& how) { end_link(host, how); }}) {}

  HeadEnd run() {
    signal(SIGPIPE, SIG_IGN);
    const sigset_t set = heads_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    carry_out(core_.begin());
    while (!end_) {
      wait();
      carry_out(core_.tick(Clock::now()));
      agents_.tick(Clock::now());
      beat();
    }
    for (std::size_t host = 0; host < config_.hosts.size(); ++host) console_.end(host);
    show_rest();
    return {end_->code, end_->has_started, end_->cause, report_};
  }

 private:
  HeadCore::Settings settings() const {
    HeadCore::Settings settings{.hosts = {},
                                .master_addr = config_.master_addr,
                                .master_port = config_.master_port,
                                .own_addresses = rendezvous::own_addresses(),
                                .shutdown_timeout = config_.header.shutdown_timeout,
                                .may_restart = config_.may_restart};
    for (const Host& host : config_.hosts) settings.hosts.push_back({host.name, is_this_machine(host, own_name_)});
    return settings;
  }

  // ---- What comes from the hosts ----

  void on_frame(std::size_t host, const Frame& frame) {
    const auto text = [&frame] { return rendezvous::printable_line(frame.payload.substr(0, kMostInHostsWords)); };
    switch (frame.kind) {
      case FrameKind::Stdout:
        return console_.take(host, HostConsole::Stream::Out, frame.payload);
      case FrameKind::Stderr:
        return console_.take(host, HostConsole::Stream::Err, frame.payload);
      case FrameKind::Failed:
        return fail(host, text());
      case FrameKind::CannotBegin:
        return on_cannot_begin(host, text());
      case FrameKind::Report:
        if (host == 0) report_ += frame.payload;
        return;
      case FrameKind::Exit:
        return on_exit_code(host, frame.payload);
      case FrameKind::Hello:
        return on_hello(host, frame.payload);
      default:
        return fail(host, "it sends what only a head sends");
    }
  }

  void on_cannot_begin(std::size_t host, const std::string& text) {
    const auto blank = text.find(' ');
    const auto code = rendezvous::parse_number<int>(text.substr(0, blank));
    if (!code || *code < 1 || *code > 255 || blank == std::string::npos)
      return fail(host, "it sends " + text_of_exit(text));
    carry_out(core_.cannot_begin(host, *code, text.substr(blank + 1), Clock::now()));
  }

  void on_exit_code(std::size_t host, std::string_view payload) {
    const auto code = rendezvous::parse_number<int>(payload);
    if (!code || *code < 0 || *code > 255) return fail(host, "it sends " + text_of_exit(payload));
    carry_out(core_.exited(host, *code, Clock::now()));
  }

  void on_hello(std::size_t host, std::string_view payload) {
    try {
      carry_out(core_.ready(host, hello_from(payload), Clock::now()));
    } catch (const rendezvous::Error& error) {
      fail(host, std::string("it says ") + error.what());
    }
  }

  void fail(std::size_t host, const std::string& why) { carry_out(core_.failed(host, why, Clock::now())); }

  void end_link(std::size_t host, const std::string& how) {
    carry_out(core_.link_ended(host, how, Clock::now()));
    if (core_.is_done(host)) console_.end(host);
  }

  // ---- Waiting ----

  void wait() {
    std::vector<pollfd> events = {
        {signals_.get(), POLLIN, 0}, {console_.waiting_out(), POLLOUT, 0}, {console_.waiting_err(), POLLOUT, 0}};
    agents_.watch(events, console_.may_take());
    poll(events.data(), events.size(), milliseconds_to_wait());
    if (events[0].revents != 0) read_signals();  // a host that is lost comes before what the others say because of it
    agents_.handle(events);
    console_.flush();
  }

  int milliseconds_to_wait() const {
    Clock::time_point next = next_beat_;
    for (const auto& due : {core_.due(), console_.due()}) next = std::min(next, due.value_or(next));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::clamp<long long>(left.count(), 0, 10'000));
  }

  void beat() {
    if (Clock::now() < next_beat_) return;
    next_beat_ = Clock::now() + kBeat;
    agents_.beat();
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGTSTP) {
        console_.say("Ctrl-Z does not stop a job on several hosts; it goes on");
      } else if (signal != SIGCHLD) {
        was_stopped_ = was_stopped_ || (signal != SIGUSR1 && signal != SIGUSR2);
        carry_out(core_.signal(signal, Clock::now()));
      }
    }
    agents_.reap();
  }

  // Shows what the consoles have not taken yet. They are waited for as long as nobody wants an end.
  void show_rest() {
    const Clock::time_point patience_ends = Clock::now() + kConsoleMayTake;
    for (console_.flush(); console_.has_unshown(); console_.flush()) {
      if (was_stopped_ && Clock::now() >= patience_ends) break;
      pollfd events[] = {
          {signals_.get(), POLLIN, 0}, {console_.waiting_out(), POLLOUT, 0}, {console_.waiting_err(), POLLOUT, 0}};
      poll(events, 3, 200);
      if (events[0].revents != 0) read_signals();
    }
    if (const std::size_t lines = console_.give_up(); lines > 0) {
      fprintf(stderr, "ddprun: %s of the hosts' output were not shown\n", lines_in_words(lines).c_str());
    }
  }

  // ---- Actions ----

  void carry_out(const HeadCore::Actions& actions) {
    for (const HeadAction& action : actions) {
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
  }

  // Before the job begins, what keeps this process from starting launch agents ends it.
  void carry_out(const StartHosts& action) {
    std::vector<RankedHost> hosts;
    for (const std::size_t rank : action.hosts) hosts.push_back({rank, config_.hosts[rank]});
    std::string why;
    try {
      return agents_.start(hosts);
    } catch (const std::exception& error) {
      if (!header_) throw;
      why = error.what();
    }
    for (const std::size_t host : action.hosts) carry_out(core_.link_ended(host, why, Clock::now()));
  }
  void carry_out(const StartAll& action) {
    header_ = config_.header;
    HostPlace& place = header_->place;
    place.nodes = static_cast<int>(config_.hosts.size());
    place.master_addr = action.master_addr;
    place.master_port = action.master_port;
    if (place.id.empty()) place.id = rendezvous::random_id();
    place.secret = rendezvous::Secret::random();
    for (std::size_t i = 0; i < config_.hosts.size(); ++i) send_header(i);
  }
  void carry_out(const StartOne& action) { send_header(action.host); }
  void carry_out(const SignalHosts& action) {
    const auto send = [this, &action](std::size_t host) {
      agents_.send(host, FrameKind::Signal, std::to_string(action.signal));
    };
    for (const std::size_t host : action.hosts) send(host);
    for (std::size_t i = 0; action.hosts.empty() && i < config_.hosts.size(); ++i) send(i);
  }
  void carry_out(const KillLink& action) { agents_.kill(action.host); }
  void carry_out(const EndLines& action) { console_.begin_again(action.host); }
  void carry_out(const CutLinks&) { agents_.cut_all(); }
  void carry_out(const KillLinks& action) { agents_.kill_all(action.signal); }
  void carry_out(const SayLine& action) { console_.say(action.text); }
  void carry_out(const EndHead& action) { end_ = action; }

  void send_header(std::size_t rank) {
    const Host& host = config_.hosts[rank];
    JobHeader header = *header_;
    header.place.node_rank = static_cast<int>(rank);
    header.place.workers = host.slots;
    header.place.gpus = comma_list(host.chosen_slots);
    agents_.send(rank, FrameKind::JobHeader, to_text(header));
  }

  const HeadConfig& config_;
  const std::string own_name_;
  HostConsole console_;
  HeadCore core_;
  Descriptor signals_;
  LaunchAgents agents_;
  std::optional<JobHeader> header_;  // what the job's hosts get, once it has begun
  Clock::time_point next_beat_ = Clock::now();
  bool was_stopped_ = false;
  std::string report_;
  std::optional<EndHead> end_;
};

}  // namespace

HeadEnd run_head(const HeadConfig& config) { return Head(config).run(); }

}  // namespace ddp::launcher
