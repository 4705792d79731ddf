// SPDX-License-Identifier: BSD-3-Clause
// Which node coordinates the job, and how this one takes part: by coordinating it as well, or by a link to who does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/link/client.hpp"

namespace ddp::launcher {

class Coordination {
 public:
  // May look up names. log: for lines to the user, from any thread. Throws rendezvous::Error: the port is taken, the
  // secret cannot be read.
  Coordination(const LaunchConfig& config, const std::string& incarnation, std::function<void(const std::string&)> log);

  // Nobody answers at the endpoint: whoever held the port, perhaps a ddprun that was dying, may have left it since.
  // Then this process takes it, if it is one of those that may: true, and link() leads to it.
  bool coordinate_instead();

  // The coordinator as the user is told of it: `10.0.0.1:29500`; empty: it is in this process.
  const std::string& where() const { return where_; }
  std::unique_ptr<rendezvous::LinkClient> link(rendezvous::asio::io_context& io,
                                               rendezvous::LinkClient::Callbacks callbacks);
  // What workers of this node are told as MASTER_ADDR, unless the job's is the same for all; coordinator_address: where
  // this node's link goes to.
  std::string master_addr(const std::string& coordinator_address) const;

 private:
  // Several ddpruns on this machine may each be the one.
  bool may_lose() const;
  void try_to_coordinate();

  const LaunchConfig& config_;
  const std::string incarnation_;
  const std::function<void(const std::string&)> log_;
  const bool is_host_;
  std::optional<rendezvous::Secret> secret_;
  std::string where_;
  std::unique_ptr<rendezvous::Coordinator> coordinator_;
};

}  // namespace ddp::launcher
