// SPDX-License-Identifier: BSD-3-Clause
// The launch agents that the head has started, one for each host, and their links. It
// starts, reads, writes and reaps; the head decides what follows.
//
// An sshd, also a jump host's, turns connections away while too many are not logged in yet (MaxStartups). ssh is
// started again then, every second or two for kTurnedAwayFor, before the host counts as one that cannot be reached.
//
// One thread. The launch agents lead sessions of their own, so that Ctrl-C does not reach them, and die with this
// process.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_list.hpp"
#include "launcher/hosts/wire/link.hpp"
#include "launcher/process/limits.hpp"

namespace ddp::launcher {

struct RankedHost {
  std::size_t rank = 0;  // the host's node rank
  Host host;
};

class LaunchAgents {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kTurnedAwayFor{15};

  struct Settings {
    std::vector<std::string> words;        // the launch agent's
    std::vector<std::string> environment;  // "NAME=value"
    std::optional<Limits> limits;          // none: this process's
    std::string own_name;                  // a host of this name needs no launch agent
  };
  struct Events {
    std::function<void(std::size_t host)> progressed;  // it has greeted, or takes more of the program
    std::function<void(std::size_t host, const rendezvous::Frame&)> frame;
    std::function<void(std::size_t host, const std::string& why)> refused;  // it cannot go on; its link is cut then
    std::function<void(std::size_t host, const std::string& how)> ended;
  };

  LaunchAgents(Settings settings, Events events);
  ~LaunchAgents();  // kills what is left
  LaunchAgents(const LaunchAgents&) = delete;
  LaunchAgents& operator=(const LaunchAgents&) = delete;

  // Throws ProgramError or rendezvous::Error; then none of them is started.
  void start(const std::vector<RankedHost>& hosts);

  // Drops the frame if the host has no link or has not greeted.
  void send(std::size_t host, rendezvous::FrameKind kind, std::string_view payload);
  void beat();
  void cut_all();
  void kill(std::size_t host);
  void kill_all(int signal) const;

  // For poll(): what to wait for, and what then is to be done with it. Nothing of the hosts' output is read unless it
  // may be taken.
  void watch(std::vector<pollfd>& events, bool may_take) const;
  void handle(const std::vector<pollfd>& events);
  // Takes the launch agents that have ended.
  void reap();
  // Starts those again that were turned away. To be called every two seconds at least.
  void tick(Clock::time_point now);

 private:
  struct Wanted {
    RankedHost host;
    Clock::time_point since;
  };
  struct TurnedAway {
    std::string how;
    Clock::time_point at;
    bool is_cut = false;
  };

  void launch(const std::vector<RankedHost>& hosts);
  void cut(std::size_t host);
  Link::Events events_of(std::size_t host);
  WorkerCommand command_of(const Host& host) const;

  const Settings settings_;
  const Events events_;
  const std::string line_;
  std::map<std::size_t, Wanted> wanted_;  // all that start() was called with
  std::map<std::size_t, Link> links_;
  std::map<std::size_t, TurnedAway> turned_away_;  // hosts that have no link and are to be started again
};

}  // namespace ddp::launcher
