// SPDX-License-Identifier: BSD-3-Clause
// The part of a ddprun on a host that starts others: starts their launch agents, hands on what the head says, and
// passes on what the hosts send, as frames of theirs. tree_core.hpp decides who starts which.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/tree/launch_agents.hpp"
#include "launcher/hosts/tree/share.hpp"
#include "launcher/hosts/tree/tree_core.hpp"
#include "launcher/hosts/wire/job_header.hpp"

namespace ddp::launcher {

class Branch {
 public:
  using Clock = std::chrono::steady_clock;
  using SendUp = std::function<void(FrameKind, std::string_view payload)>;

  explicit Branch(SendUp send_up) : send_up_(std::move(send_up)) {}

  // What the head says. Throws rendezvous::Error if it says what does not belong here.
  void take_share(std::string_view payload);
  void take_header(const JobHeader& header);
  void pass_on_beat();
  void pass_on_signal(int signal);

  bool has_links() const { return agents_ && !agents_->is_empty(); }
  void cut();  // the hosts end what they run

  void watch(std::vector<pollfd>& events, bool may_take) const;
  void handle(const std::vector<pollfd>& events);
  void reap();
  void tick(Clock::time_point now);
  // Returns when tick() has something to do.
  std::optional<Clock::time_point> due() const { return has_ended_ ? std::nullopt : core_.due(); }

  // In a child: closes what it has inherited.
  void forget();

 private:
  void on_frame(std::size_t host, const Frame& frame);
  void on_relayed(std::size_t host, const std::string& payload);
  void on_progress(std::size_t host);
  void on_end(std::size_t host, const std::string& how);
  void refuse(std::size_t host, const std::string& why);
  void give_header(std::size_t host);
  void say_of(std::size_t host, FrameKind kind, std::string_view payload);

  void carry_out(const TreeCore::Actions& actions);
  void carry_out(const StartHosts& action);
  void carry_out(const HandOn& action);
  void carry_out(const StartsAgain& action);
  void carry_out(const Unreached& action);
  void carry_out(const Gone& action);

  const SendUp send_up_;
  Share share_;
  std::map<std::size_t, RankedHost> hosts_;
  TreeCore core_;
  std::optional<JobHeader> header_;
  bool has_ended_ = false;                         // no host is to be started any more
  std::map<std::size_t, Clock::time_point> told_;  // when a host's progress was last passed on
  std::set<std::size_t> overdue_;                  // hosts whose launch agents were killed for that
  std::unique_ptr<LaunchAgents> agents_;           // once there is a share
};

}  // namespace ddp::launcher
