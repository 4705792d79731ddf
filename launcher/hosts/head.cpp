// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/head.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "launcher/config/program.hpp"
#include "launcher/hosts/head_core.hpp"
#include "launcher/hosts/host_console.hpp"
#include "launcher/hosts/launch_line.hpp"
#include "launcher/hosts/link.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/text/lines.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;

constexpr std::chrono::seconds kBeat{2};
constexpr std::chrono::seconds kConsoleMayTake{1};  // after a signal that ends the job

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

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) variables.emplace_back(*entry);
  return variables;
}

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

std::string gpu_list(const std::vector<int>& slots) {
  std::string list;
  for (const int slot : slots) list += (list.empty() ? "" : ",") + std::to_string(slot);
  return list;
}

std::string text_of_exit(const std::string& payload) {
  return "the exit code \"" + rendezvous::printable_line(payload) + "\"";
}

class Head {
 public:
  explicit Head(const HeadConfig& config)
      : config_(config),
        own_name_(rendezvous::host_name()),
        console_(names_of(config.hosts)),
        core_(settings(), Clock::now()) {}

  ~Head() {
    for (const Link& link : links_) link.kill();
    for (const Link& link : links_) {
      if (link.pid() > 0 && !link.has_ended()) waitpid(link.pid(), nullptr, 0);
    }
  }

  int run() {
    signal(SIGPIPE, SIG_IGN);
    const sigset_t set = heads_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    start_agents();
    while (!code_) {
      wait();
      carry_out(core_.tick(Clock::now()));
      beat();
    }
    show_rest();
    return *code_;
  }

 private:
  HeadCore::Settings settings() const {
    HeadCore::Settings settings{.hosts = {},
                                .master_addr = config_.master_addr,
                                .master_port = config_.master_port,
                                .shutdown_timeout = config_.header.shutdown_timeout};
    for (const Host& host : config_.hosts) settings.hosts.push_back({host.name, is_this_machine(host, own_name_)});
    return settings;
  }

  // ---- Launch agents ----

  void start_agents() {
    const Limits limits = raise_limits();
    const std::vector<std::string> environment = own_environment();
    const std::string line = launch_line(own_build());
    std::vector<WorkerCommand> commands;
    for (std::size_t i = 0; i < config_.hosts.size(); ++i) {
      WorkerCommand command = command_of(config_.hosts[i], line);
      command.environment = environment;
      command.limits = limits;
      links_.emplace_back(command.arguments[0], events_of(i)).connect(command);
      commands.push_back(std::move(command));
    }
    const Spawned spawned = spawn(std::move(commands));
    for (std::size_t i = 0; i < links_.size(); ++i) links_[i].started(spawned.pids()[i]);
  }

  WorkerCommand command_of(const Host& host, const std::string& line) const {
    if (is_this_machine(host, own_name_)) return {.path = "/proc/self/exe", .arguments = {"ddprun", kOnHost}};
    std::vector<std::string> words = launch_command(config_.agent, host, line);
    const auto path = words[0].find('/') != std::string::npos ? std::optional(words[0]) : find_in_path(words[0]);
    if (!path || access(path->c_str(), X_OK) != 0) {
      throw ProgramError(
          127, words[0] + ": not found; it starts ddprun on " + host.name + " (--launch-agent names another program)");
    }
    return {.path = *path, .arguments = std::move(words)};
  }

  Link::Events events_of(std::size_t host) {
    return {.progressed = [this, host] { core_.progressed(host, Clock::now()); },
            .frame = [this, host](const Frame& frame) { on_frame(host, frame); },
            .refused =
                [this, host](const std::string& why) {
                  carry_out(core_.failed(host, why, Clock::now()));
                  links_[host].cut();
                }};
  }

  void on_frame(std::size_t host, const Frame& frame) {
    const auto code = rendezvous::parse_number<int>(frame.payload);
    if (frame.kind == FrameKind::Stdout) return console_.take(host, HostConsole::Stream::Out, frame.payload);
    if (frame.kind == FrameKind::Stderr) return console_.take(host, HostConsole::Stream::Err, frame.payload);
    if (frame.kind == FrameKind::Failed) {
      return carry_out(core_.failed(host, rendezvous::printable_line(frame.payload), Clock::now()));
    }
    if (frame.kind == FrameKind::Exit && code && *code >= 0 && *code <= 255) {
      return carry_out(core_.exited(host, *code, Clock::now()));
    }
    if (frame.kind != FrameKind::Hello) {
      return carry_out(core_.failed(host, "it sends " + text_of_exit(frame.payload), Clock::now()));
    }
    try {
      carry_out(core_.ready(host, hello_from(frame.payload), Clock::now()));
    } catch (const rendezvous::Error& error) {
      carry_out(core_.failed(host, std::string("it says ") + error.what(), Clock::now()));
    }
  }

  // ---- Waiting ----

  void wait() {
    std::vector<pollfd> events = {
        {signals_.get(), POLLIN, 0}, {console_.waiting_out(), POLLOUT, 0}, {console_.waiting_err(), POLLOUT, 0}};
    const std::size_t first = events.size();
    const bool may_take = console_.may_take();
    for (const Link& link : links_) {
      events.push_back({link.in(), POLLOUT, 0});
      events.push_back({may_take ? link.out() : -1, POLLIN, 0});
      events.push_back({link.err(), POLLIN, 0});
    }
    poll(events.data(), events.size(), milliseconds_to_wait());
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const pollfd* const of_link = &events[first + 3 * i];
      if (of_link[0].revents != 0 && links_[i].in() >= 0) links_[i].write_some();
      if (of_link[1].revents != 0) links_[i].read_out();
      if (of_link[2].revents != 0) links_[i].read_err();
    }
    console_.flush();
    if (events[0].revents != 0) read_signals();
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
    if (!has_started_) return;
    for (Link& link : links_) {
      if (link.in() < 0) link.send(FrameKind::Beat, "");  // else its last word has not gone out yet
    }
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
    for (std::size_t i = 0; i < links_.size(); ++i) reap(i);
  }

  void reap(std::size_t host) {
    Link& link = links_[host];
    int status = 0;
    if (link.has_ended() || waitpid(link.pid(), &status, WNOHANG) != link.pid()) return;
    const std::string how = link.end(status);
    console_.end(host);
    carry_out(core_.link_ended(host, how, Clock::now()));
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

  void carry_out(const StartAll& action) {
    JobHeader header = config_.header;
    HostPlace& place = header.place;
    place.nodes = static_cast<int>(links_.size());
    place.master_addr = action.master_addr;
    place.master_port = action.master_port;
    if (place.id.empty()) place.id = rendezvous::random_id();
    place.secret = rendezvous::Secret::random();
    for (std::size_t i = 0; i < links_.size(); ++i) {
      place.node_rank = static_cast<int>(i);
      place.workers = config_.hosts[i].slots;
      place.gpus = gpu_list(config_.hosts[i].chosen_slots);
      links_[i].send(FrameKind::Header, to_text(header));
    }
    has_started_ = true;
    next_beat_ = Clock::now() + kBeat;
  }
  void carry_out(const SignalHosts& action) {
    for (Link& link : links_) link.send(FrameKind::Signal, std::to_string(action.signal));
  }
  void carry_out(const CutLinks&) {
    for (Link& link : links_) link.cut();
  }
  void carry_out(const KillLinks&) {
    for (const Link& link : links_) link.kill();
  }
  void carry_out(const SayLine& action) { console_.say(action.text); }
  void carry_out(const EndHead& action) { code_ = action.code; }

  const HeadConfig& config_;
  const std::string own_name_;
  HostConsole console_;
  HeadCore core_;
  Descriptor signals_;
  std::deque<Link> links_;  // in the order of the hosts
  Clock::time_point next_beat_ = Clock::now();
  bool has_started_ = false;
  bool was_stopped_ = false;
  std::optional<int> code_;
};

}  // namespace

int run_head(const HeadConfig& config) { return Head(config).run(); }

}  // namespace ddp::launcher
