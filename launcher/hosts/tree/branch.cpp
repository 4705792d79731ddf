// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/tree/branch.hpp"

#include <algorithm>
#include <csignal>
#include <variant>

#include "launcher/hosts/passed_variables.hpp"
#include "launcher/hosts/tree/relayed.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

constexpr std::chrono::seconds kProgressEvery{1};

}  // namespace

void Branch::take_share(std::string_view payload) {
  if (agents_) throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, "a second share of hosts");
  share_ = share_from(payload);
  for (const std::string& variable : share_.variables) set_variable(variable);
  agents_ = std::make_unique<LaunchAgents>(
      LaunchAgents::Settings{.words = share_.agent, .environment = own_environment()},
      LaunchAgents::Events{
          .progressed = [this](std::size_t host) { on_progress(host); },
          .frame = [this](std::size_t host, const Frame& frame) { on_frame(host, frame); },
          .refused = [this](std::size_t host, const std::string& why) { say_of(host, FrameKind::Failed, why); },
          .ended = [this](std::size_t host, const std::string& how) { on_end(host, how); }});
  std::vector<std::size_t> ranks;
  for (const RankedHost& one : share_.hosts) {
    hosts_[one.rank] = one;
    ranks.push_back(one.rank);
  }
  carry_out(core_.begin({}, ranks));
}

void Branch::take_header(const JobHeader& header) {
  header_ = header;
  for (const auto& [host, one] : hosts_) give_header(host);
}

// Gives the header to a host that was started from here and is ready, once.
void Branch::give_header(std::size_t host) {
  if (!header_ || has_ended_ || !core_.may_get_header(host)) return;
  agents_->send(host, FrameKind::Header, to_text(header_for(*header_, hosts_.at(host))));
  core_.got_header(host);
}

void Branch::pass_on_beat() {
  if (agents_) agents_->beat();
}

void Branch::pass_on_signal(int signal) {
  if (!agents_) return;
  if (signal != SIGUSR1 && signal != SIGUSR2) has_ended_ = true;
  for (const auto& [host, one] : hosts_) {
    if (core_.has_header(host)) {
      agents_->send(host, FrameKind::Signal, std::to_string(signal));
    } else if (has_ended_) {
      agents_->cut(host);
    }
  }
}

void Branch::cut() {
  has_ended_ = true;
  if (agents_) agents_->cut_all();
}

void Branch::watch(std::vector<pollfd>& events, bool may_take) const {
  if (agents_) agents_->watch(events, may_take);
}

void Branch::handle(const std::vector<pollfd>& events) {
  if (agents_) agents_->handle(events);
}

void Branch::reap() {
  if (agents_) agents_->reap();
}

void Branch::forget() {
  if (agents_) agents_->forget();
}

void Branch::tick(Clock::time_point now) {
  if (agents_) agents_->tick(now);
  if (has_ended_) return;
  for (const std::size_t host : core_.overdue(now)) {
    core_.progressed(host, now);
    overdue_.insert(host);
    agents_->kill(host);
  }
}

// ---- What comes from the hosts ----

void Branch::on_frame(std::size_t host, const Frame& frame) {
  if (frame.kind == FrameKind::Relayed) return on_relayed(host, frame.payload);
  if (!may_be_relayed(frame.kind)) return refuse(host, "it sends what only a head sends");
  if (frame.kind == FrameKind::Hello) {
    carry_out(core_.ready(host));
    give_header(host);
  }
  say_of(host, frame.kind, frame.payload);
}

void Branch::on_relayed(std::size_t host, const std::string& payload) {
  try {
    const Relayed relayed = relayed_from(payload);
    if (!core_.is_behind(relayed.host, host)) return refuse(host, "it speaks for a host that it has not started");
    if (relayed.frame.kind == FrameKind::Ended && !core_.has_header(host)) {
      return carry_out(core_.unreached(relayed.host, relayed.frame.payload));
    }
    send_up_(FrameKind::Relayed, payload);
  } catch (const rendezvous::Error& error) {
    refuse(host, std::string("it sends ") + error.what());
  }
}

void Branch::on_progress(std::size_t host) {
  const auto now = Clock::now();
  core_.progressed(host, now);
  const auto told = told_.find(host);
  if (told != told_.end() && now < told->second + kProgressEvery) return;
  told_[host] = now;
  say_of(host, FrameKind::Progress, "");
}

void Branch::on_end(std::size_t host, const std::string& how) {
  if (has_ended_) return say_of(host, FrameKind::Ended, how);
  const bool was_overdue = overdue_.erase(host) > 0;
  carry_out(core_.ended(host, was_overdue ? "no answer in " + rendezvous::to_string(TreeCore::kReachWithin) : how));
}

void Branch::refuse(std::size_t host, const std::string& why) {
  say_of(host, FrameKind::Failed, why);
  agents_->cut(host);
}

void Branch::say_of(std::size_t host, FrameKind kind, std::string_view payload) {
  send_up_(FrameKind::Relayed, to_relayed(host, kind, payload));
}

// ---- Actions ----

void Branch::carry_out(const TreeCore::Actions& actions) {
  for (const TreeAction& action : actions) {
    std::visit([this](const auto& a) { carry_out(a); }, action);
  }
}

void Branch::carry_out(const StartHosts& action) {
  if (has_ended_) return;
  std::vector<RankedHost> hosts;
  for (const std::size_t host : action.hosts) hosts.push_back(hosts_.at(host));
  std::string why;
  try {
    agents_->start(hosts);
    for (const std::size_t host : action.hosts) core_.progressed(host, Clock::now());
    return;
  } catch (const std::exception& error) {
    why = error.what();
  }
  for (const std::size_t host : action.hosts) carry_out(core_.ended(host, why));
}

void Branch::carry_out(const HandOn& action) {
  Share share{.agent = share_.agent, .variables = share_.variables};
  for (const std::size_t host : action.hosts) {
    share.hosts.push_back(hosts_.at(host));
    say_of(host, FrameKind::Progress, "");
  }
  agents_->send(action.branch, FrameKind::Share, to_text(share));
}

void Branch::carry_out(const StartsAgain& action) { say_of(action.host, FrameKind::Again, action.why); }

void Branch::carry_out(const Unreached& action) { say_of(action.host, FrameKind::Ended, action.how); }

void Branch::carry_out(const Gone& action) {
  say_of(action.host, FrameKind::Ended, action.how);
  for (const std::size_t host : action.behind) say_of(host, FrameKind::Ended, "");
}

}  // namespace ddp::launcher
