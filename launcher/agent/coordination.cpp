// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/coordination.hpp"

#include <utility>

#include "rendezvous/base/random_id.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/own_address.hpp"

namespace ddp::launcher {

namespace {

// Returns whether this node is to coordinate, or to try.
bool is_host(const LaunchConfig& config) {
  if (config.job.max_nodes == 1) return true;
  if (config.job.node_ranks_given) return config.node_rank == 0;
  if (config.is_host) return *config.is_host;
  return rendezvous::is_own_host(config.master_addr, config.local_addr);
}

// Warns if this node has --node-rank 0 but not the address: two such hosts would each wait for the others. It is no
// error, since an address may lead to a machine that does not know it.
void warn_if_elsewhere(const LaunchConfig& config, const std::function<void(const std::string&)>& log) {
  const bool is_given = config.job.max_nodes > 1 && config.job.node_ranks_given;
  if (!is_given || rendezvous::is_own_host(config.master_addr, config.local_addr)) return;
  log("this node has --node-rank 0 and coordinates, but --master-addr " + config.master_addr +
      " is not an address of this machine: the other nodes may not find it");
}

}  // namespace

Coordination::Coordination(const LaunchConfig& config, const std::string& incarnation,
                           std::function<void(const std::string&)> log)
    : config_(config), incarnation_(incarnation), log_(std::move(log)), is_host_(is_host(config)) {
  if (config.job.max_nodes > 1 && !config.secret_file.empty()) {
    rendezvous::SecretFile file = rendezvous::read_secret_file(config.secret_file);
    if (!file.warning.empty()) log_(file.warning);
    secret_ = std::move(file.secret);
  }
  if (is_host_) {
    warn_if_elsewhere(config, log_);
    if (!is_given()) own_endpoint_ = rendezvous::own_address_of(config.master_addr);
    try_to_coordinate();
  }
  if (!coordinator_) where_ = rendezvous::endpoint(config.master_addr, config.master_port);
}

bool Coordination::coordinate_instead() {
  if (coordinator_ || !is_host_ || !may_lose()) return false;
  try_to_coordinate();
  return coordinator_ != nullptr;
}

bool Coordination::may_lose() const {
  return !config_.job.node_ranks_given && !config_.is_host && config_.job.max_nodes > 1;
}

bool Coordination::is_given() const { return config_.job.node_ranks_given || config_.job.max_nodes == 1; }

// Starts the coordinator. Of several ddpruns on the endpoint's machine the one that gets the port coordinates.
void Coordination::try_to_coordinate() {
  rendezvous::Coordinator::Options options;
  options.addresses = config_.store_addresses;
  options.port = config_.master_port;
  options.secret = secret_;
  options.log = log_;
  options.master_addr = is_given() ? config_.master_addr : config_.local_addr;
  try {
    coordinator_ =
        std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorConfig{.job = config_.job,
                                                                                .epoch = rendezvous::random_id(),
                                                                                .own_incarnation = incarnation_,
                                                                                .join_timeout = config_.timeouts.join,
                                                                                .last_call = config_.timeouts.last_call,
                                                                                .lost_after = config_.timeouts.lost},
                                                  std::move(options));
  } catch (const rendezvous::AddressInUse&) {
    if (!may_lose()) throw;
  }
}

std::unique_ptr<rendezvous::LinkClient> Coordination::link(rendezvous::asio::io_context& io,
                                                           rendezvous::LinkClient::Callbacks callbacks) {
  if (coordinator_) {
    return std::make_unique<rendezvous::LinkClient>(io, coordinator_->connect_agent(), std::move(callbacks));
  }
  return std::make_unique<rendezvous::LinkClient>(io, config_.master_addr, config_.master_port, secret_,
                                                  std::move(callbacks));
}

std::string Coordination::master_addr(const std::string& coordinator_address) const {
  if (!coordinator_address.empty()) return coordinator_address;
  const std::vector<std::string> own = rendezvous::own_addresses();
  return own.empty() ? "127.0.0.1" : own.front();
}

}  // namespace ddp::launcher
