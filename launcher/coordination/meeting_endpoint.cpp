// SPDX-License-Identifier: BSD-3-Clause
// Nodes that meet at an endpoint: of the ddpruns on the endpoint's machine the one leads that gets the port.
#include <strings.h>

#include <algorithm>

#include "launcher/coordination/meeting.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {

namespace {

using Warn = std::function<void(const std::string&)>;

// Returns whether this node is to lead, or to try.
bool is_host(const LaunchConfig& config, const rendezvous::NamedHost& endpoint) {
  if (config.job.node_ranks_given) return config.node_rank == 0;
  if (config.is_host) return *config.is_host;
  return rendezvous::is_own_host(endpoint, config.local_addr);
}

class EndpointMeeting : public Meeting {
 public:
  EndpointMeeting(const LaunchConfig& config, const Warn& warn)
      : config_(config), warn_(warn), endpoint_(config.master_addr, warn), is_host_(is_host(config, endpoint_)) {
    warn_if_everywhere();
    // A MASTER_ADDR that the user gave is the same for all nodes.
    if (is_host_ && !config.job.node_ranks_given) own_endpoint_ = rendezvous::own_address_of(endpoint_);
  }

  std::string where() const override {
    const std::string first = rendezvous::endpoint(config_.master_addr, config_.master_port);
    const std::size_t others = config_.next_ports.size();
    return others == 0 ? first : first + " (or " + std::to_string(others) + " other ports)";
  }
  std::optional<Start> try_to_lead() override;
  rendezvous::LinkTarget target() const override {
    rendezvous::LinkTarget target{.hosts = {config_.master_addr}, .ports = ports(), .job = {}};
    if (!config_.next_ports.empty()) target.job = rendezvous::job_tag(config_.job.id);
    return target;
  }
  std::string own_endpoint() const override { return own_endpoint_; }
  std::string taken_by() const override { return port_owner_.empty() ? "" : "; " + port_owner_; }

 private:
  std::vector<std::uint16_t> ports() const {
    std::vector<std::uint16_t> ports = {config_.master_port};
    ports.insert(ports.end(), config_.next_ports.begin(), config_.next_ports.end());
    return ports;
  }
  // Returns whether several ddpruns on this machine may compete for the endpoint, so that losing it is no error.
  bool may_lose() const { return !config_.job.node_ranks_given && !config_.is_host; }
  void warn_if_elsewhere() const;
  void warn_if_everywhere() const;

  const LaunchConfig& config_;
  const Warn warn_;
  const rendezvous::NamedHost endpoint_;  // as given; its addresses are looked up once
  const bool is_host_;
  std::string own_endpoint_;
  std::string port_owner_;  // why this node does not lead although it is the host
};

// Listens at the first port that is free. A ddprun that was killed may hold its port for some milliseconds more.
std::optional<Meeting::Start> EndpointMeeting::try_to_lead() {
  if (!is_host_) return std::nullopt;
  warn_if_elsewhere();
  std::vector<std::string> addresses = config_.store_addresses;
  if (addresses.empty()) addresses = rendezvous::addresses_for(endpoint_, config_.local_addr);
  const std::vector<std::uint16_t> all = ports();
  for (const std::uint16_t port : all) {
    try {
      return Start{addresses, rendezvous::listen_on(addresses, port)};
    } catch (const rendezvous::AddressInUse&) {
      if (port == all.back() && !may_lose()) throw;
      // Another ddprun of this user may be of this job, or about to end. What another user has is neither.
      if (may_lose() && rendezvous::is_strangers_port(port)) throw;
      if (port_owner_.empty())
        port_owner_ = "port " + std::to_string(port) + " of this machine is taken by " + rendezvous::port_owner(port);
    }
  }
  return std::nullopt;
}

// Warns if this node has --node-rank 0 but not the address: two such hosts would each wait for the others. It is no
// error, since an address may lead to a machine that does not know it.
void EndpointMeeting::warn_if_elsewhere() const {
  if (!config_.job.node_ranks_given) return;
  const rendezvous::HostIs whose = rendezvous::whose_host(endpoint_, config_.local_addr);
  if (whose == rendezvous::HostIs::Own) return;
  // A name of Kubernetes' DNS, for example, leads to the pod a moment after the pod has started.
  const bool leads_nowhere = whose == rendezvous::HostIs::Unresolved;
  warn_("this node has --node-rank 0 and coordinates, but --master-addr " + config_.master_addr +
        (leads_nowhere ? " cannot be resolved here: the other nodes find it once they can resolve it"
                       : " is not an address of this machine: the other nodes may not find it"));
}

// Warns if every machine takes the endpoint for its own.
void EndpointMeeting::warn_if_everywhere() const {
  const std::string& host = config_.master_addr;
  const bool is_everywhere =
      rendezvous::is_loopback(host) || strcasecmp(host.c_str(), "localhost") == 0 || host == "0.0.0.0" || host == "::";
  if (!is_everywhere) return;
  warn_("the nodes of this job meet at " + rendezvous::endpoint(host, config_.master_port) + " (" +
        config_.endpoint_from +
        "), which is each machine itself: nodes on two machines do not find each other there; give all nodes the name "
        "or address of one of them");
}

}  // namespace

std::unique_ptr<Meeting> meeting_at_endpoint(const LaunchConfig& config, const Warn& warn) {
  return std::make_unique<EndpointMeeting>(config, warn);
}

}  // namespace ddp::launcher
