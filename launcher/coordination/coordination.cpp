// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/coordination.hpp"

#include <algorithm>
#include <utility>

#include "launcher/coordination/membership.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {

Coordination::Coordination(const LaunchConfig& config, const std::string& incarnation, Sidecars* sidecars, Lines log)
    : config_(config), log_(std::move(log)), epoch_(rendezvous::random_id()), sidecars_(sidecars) {
  if (!sidecars) {
    coordinate_here(incarnation);
    return;
  }
  sidecars->candidacy().note("", -1);  // an agent before this one may have had a rank
  FoundMembership found = find_membership(config);
  log_.info("the job's secret: " + found.said);
  membership_ = std::move(found.membership);
  using Kind = rendezvous::Membership::Kind;
  if (membership_.kind() == Kind::Secret) proof_ = "secret";
  if (membership_.kind() == Kind::Munge) proof_ = "munge";
  meeting_ = config.etcd                    ? meeting_in_etcd(config, *sidecars)
             : !config.meeting_file.empty() ? meeting_in_file(config, epoch_)
                                            : meeting_at_endpoint(config, log_.warning);
  if (sidecars->are_here()) {  // the agent before this one had them started
    has_sidecars_ = true;
    addresses_ = sidecars->plan().addresses;
  } else {
    try_to_lead();
  }
}

void Coordination::read_lines(rendezvous::asio::io_context& io, EtcdEvents events) {
  if (!sidecars_) return;
  moved_ = std::move(events.moved);
  lines_ =
      sidecars_->read_lines(io, {.warning = log_.warning,
                                 .record = [this](const rendezvous::RecordNode& node) { log_.record(node, proof_); },
                                 .leader = [this](const Leader& leader) { on_leader(leader); },
                                 .trouble = std::move(events.trouble),
                                 .refused = std::move(events.refused)});
  meeting_->ask_again();
}

void Coordination::on_leader(const Leader& leader) {
  const bool was_beside = is_beside();
  const bool has_moved = meeting_->take(leader);
  if (is_beside() && !was_beside) warn_if_open(leader.note.port);
  if (has_moved) moved_("node " + leader.note.host + " coordinates now");
}

bool Coordination::look_again() {
  if (!meeting_ || has_sidecars_) return false;
  return meeting_->has_moved() || try_to_lead();
}

bool Coordination::try_to_lead() {
  const auto start = meeting_->try_to_lead();
  if (!start) return false;
  addresses_ = start->addresses;
  sidecars_->start({.epoch = epoch_, .addresses = addresses_}, start->listeners, start->kept_open);
  has_sidecars_ = true;
  if (is_beside()) warn_if_open(start->listeners.port);
  return true;
}

void Coordination::coordinate_here(const std::string& incarnation) {
  addresses_ = config_.store_addresses;
  rendezvous::Coordinator::Options options;
  options.addresses = addresses_;
  options.port = config_.master_port;
  options.hosts_workers_store = config_.workers_share_store;
  options.any_user = config_.any_user;
  options.log = log_.warning;
  options.record = [this](const rendezvous::RecordNode& node) { log_.record(node, proof_); };
  options.master_addr = config_.master_addr;
  coordinator_ =
      std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorConfig{.job = config_.job,
                                                                              .epoch = epoch_,
                                                                              .own_incarnation = incarnation,
                                                                              .join_timeout = config_.timeouts.join,
                                                                              .last_call = config_.timeouts.last_call,
                                                                              .lost_after = config_.timeouts.lost},
                                                std::move(options));
}

// Says that anybody may join, unless the user wants it so or only this machine can reach the coordinator.
void Coordination::warn_if_open(std::uint16_t port) const {
  if (config_.secret == "none" || membership_.kind() != rendezvous::Membership::Kind::Open) return;
  if (std::all_of(addresses_.begin(), addresses_.end(), rendezvous::is_loopback)) return;
  const bool has_id = config_.job.id != "none";
  log_.warning("any host that reaches port " + std::to_string(port) + (has_id ? " and knows the --rdzv-id" : "") +
               " may join this job, which has no secret: make one with --make-secret, or give --secret none");
}

std::unique_ptr<rendezvous::LinkClient> Coordination::link(rendezvous::asio::io_context& io,
                                                           rendezvous::LinkClient::Callbacks callbacks) {
  if (coordinator_) {
    return std::make_unique<rendezvous::LinkClient>(io, coordinator_->connect_agent(), std::move(callbacks));
  }
  if (is_beside()) {
    return std::make_unique<rendezvous::LinkClient>(
        io, [this] { return sidecars_->link(); }, std::move(callbacks));
  }
  rendezvous::LinkTarget to = meeting_->target();
  to.any_user = config_.any_user;
  return std::make_unique<rendezvous::LinkClient>(io, std::move(to), membership_, std::move(callbacks));
}

std::string Coordination::master_addr(const std::string& coordinator_address) const {
  if (!coordinator_address.empty()) return coordinator_address;
  if (!addresses_.empty() && addresses_.front() != "0.0.0.0") return addresses_.front();
  return rendezvous::offered_addresses("").front();
}

}  // namespace ddp::launcher
