// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/coordination.hpp"

#include <strings.h>

#include <algorithm>
#include <utility>

#include "launcher/coordination/membership.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::launcher {

namespace {

// Returns whether this node is to coordinate, or to try.
bool is_host(const LaunchConfig& config, const rendezvous::NamedHost& endpoint) {
  if (config.job.max_nodes == 1) return true;
  if (!config.meeting_file.empty() || config.etcd) return false;  // the file or etcd says which one does
  if (config.job.node_ranks_given) return config.node_rank == 0;
  if (config.is_host) return *config.is_host;
  return rendezvous::is_own_host(endpoint, config.local_addr);
}

// Warns if this node has --node-rank 0 but not the address: two such hosts would each wait for the others. It is no
// error, since an address may lead to a machine that does not know it.
void warn_if_elsewhere(const LaunchConfig& config, const rendezvous::NamedHost& endpoint,
                       const std::function<void(const std::string&)>& log) {
  const bool is_given = config.job.max_nodes > 1 && config.job.node_ranks_given;
  if (!is_given) return;
  const rendezvous::HostIs whose = rendezvous::whose_host(endpoint, config.local_addr);
  if (whose == rendezvous::HostIs::Own) return;
  // A name of Kubernetes' DNS, for example, leads to the pod a moment after the pod has started.
  const bool leads_nowhere = whose == rendezvous::HostIs::Unresolved;
  log("this node has --node-rank 0 and coordinates, but --master-addr " + config.master_addr +
      (leads_nowhere ? " cannot be resolved here: the other nodes find it once they can resolve it"
                     : " is not an address of this machine: the other nodes may not find it"));
}

// Warns if every machine takes the endpoint for its own.
void warn_if_everywhere(const LaunchConfig& config, const std::function<void(const std::string&)>& log) {
  const std::string& host = config.master_addr;
  const bool is_everywhere =
      rendezvous::is_loopback(host) || strcasecmp(host.c_str(), "localhost") == 0 || host == "0.0.0.0" || host == "::";
  if (!is_everywhere) return;
  log("the nodes of this job meet at " + rendezvous::endpoint(host, config.master_port) + " (" + config.endpoint_from +
      "), which is each machine itself: nodes on two machines do not find each other there; give all nodes the name or "
      "address of one of them");
}

}  // namespace

Coordination::Coordination(const LaunchConfig& config, const std::string& incarnation, Parts* parts, Lines log)
    : config_(config),
      incarnation_(incarnation),
      log_(std::move(log)),
      epoch_(rendezvous::random_id()),
      endpoint_(config.master_addr, log_.warning),
      is_host_(is_host(config, endpoint_)),
      parts_(parts) {
  if (config.job.max_nodes > 1) {
    FoundMembership found = find_membership(config);
    log_.info("the job's secret: " + found.said);
    membership_ = std::move(found.membership);
    using Kind = rendezvous::Membership::Kind;
    if (membership_.kind() == Kind::Secret) proof_ = "secret";
    if (membership_.kind() == Kind::Munge) proof_ = "munge";
  }
  where_ =
      config.meeting_file.empty() ? rendezvous::endpoint(config.master_addr, config.master_port) : config.meeting_file;
  if (!config.next_ports.empty()) where_ += " (or " + std::to_string(config.next_ports.size()) + " other ports)";
  if (config.job.max_nodes == 1) where_.clear();
  if (config.etcd) {
    meet_in_etcd();
    return;
  }
  if (!where_.empty() && config.meeting_file.empty()) warn_if_everywhere(config, log_.warning);
  if (parts_ && parts_->are_here()) {  // the agent before this one had them started
    coordinates_beside_ = true;
    addresses_ = parts_->plan().addresses;
    if (!is_given()) own_endpoint_ = rendezvous::own_address_of(endpoint_);
    return;
  }
  if (is_host_) {
    warn_if_elsewhere(config, endpoint_, log_.warning);
    if (!is_given()) own_endpoint_ = rendezvous::own_address_of(endpoint_);
    try_to_coordinate();
  }
  if (!config.meeting_file.empty()) {
    file_.emplace(config.meeting_file);
    meet_in_file();
  }
}

void Coordination::read_lines(rendezvous::asio::io_context& io, EtcdEvents events) {
  if (!parts_) return;
  etcd_events_ = std::move(events);
  lines_ = parts_->read_lines(io, {.warning = log_.warning,
                                   .record = [this](const rendezvous::RecordNode& node) { log_.record(node, proof_); },
                                   .holder = [this](const Holder& holder) { on_holder(holder); },
                                   .trouble = etcd_events_.trouble,
                                   .refused = etcd_events_.refused});
  if (config_.etcd) parts_->ask_for_holder();
}

// ---- etcd ----

// Every node can coordinate, so each listens at a port of its own.
void Coordination::meet_in_etcd() {
  where_ = "the node that etcd names";
  if (const auto files = etcd_settings(*config_.etcd).tls) rendezvous::TlsContext{*files};  // throws what is wrong
  if (parts_->are_here()) {
    addresses_ = parts_->plan().addresses;
  } else {
    listen(0);
    start_parts();
  }
}

// Lines of a candidate that was killed may come late, and each is said more than once.
void Coordination::on_holder(const Holder& holder) {
  if (told_place_ >= 0) parts_->tell_place(told_place_);
  if (holder_ && holder.epoch <= holder_->epoch) return;
  const bool is_same = holder_ && holder_->note == holder.note;
  const bool was_here = is_held_here();
  holder_ = holder;
  if (is_held_here() && !was_here) warn_if_open(holder.note.port);
  if (!is_same) etcd_events_.moved("node " + holder.note.host + " coordinates now");
}

void Coordination::note(const rendezvous::AgentState& state, int node_rank) {
  if (!config_.etcd) return;
  if (std::exchange(told_epoch_, state.epoch) != state.epoch) parts_->note_obeyed(state.epoch);
  if (std::exchange(told_place_, node_rank) != node_rank) parts_->tell_place(node_rank);
}

void Coordination::note_left() {
  if (config_.etcd) parts_->note_left();
}

void Coordination::ask_again() const {
  if (!config_.etcd) return;
  parts_->ask_for_holder();
  parts_->tell_place(told_place_);
}

bool Coordination::look_again() {
  if (coordinates()) return false;
  if (file_) {
    const auto entry = file_->read();
    const bool is_news = entry && entry->epoch != named_.epoch;
    if (!is_news) return !file_->is_held() && coordinate_in_file();
    named_ = *entry;
    return true;
  }
  if (!is_host_ || !may_lose()) return false;
  try_to_coordinate();
  return coordinates();
}

// Follows the file, or coordinates if there is none.
void Coordination::meet_in_file() {
  constexpr int kTries = 100;  // each one fails only because another node has just written or removed the file
  for (int tries = 0; tries < kTries; ++tries) {
    if (const auto entry = file_->read()) {
      named_ = *entry;
      return;
    }
    if (coordinate_in_file()) return;
  }
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          config_.meeting_file +
                              ": other nodes write and remove this file all the time; give each job "
                              "a file of its own as --rdzv-endpoint");
}

// Starts a coordinator and writes into the file where it is. Returns false if another node was faster.
bool Coordination::coordinate_in_file() {
  if (parts_) listen(0);
  if (!parts_) coordinate(0);
  MeetingFile::Entry entry{.job = config_.job.id, .epoch = epoch_, .addresses = {}, .port = listeners_.port};
  if (coordinator_) entry.port = coordinator_->port();
  entry.addresses = rendezvous::offered_addresses(config_.local_addr);
  const bool is_ours = file_->claim(entry);
  if (is_ours && parts_) start_parts();
  if (!is_ours) coordinator_.reset();
  listeners_ = {};
  return coordinates();
}

bool Coordination::may_lose() const {
  return !config_.job.node_ranks_given && !config_.is_host && config_.job.max_nodes > 1;
}

bool Coordination::is_given() const { return config_.job.node_ranks_given || config_.job.max_nodes == 1; }

// Starts the coordinator at the first port that is free. Of several ddpruns on the endpoint's machine the one that gets
// the port coordinates.
void Coordination::try_to_coordinate() {
  std::vector<std::uint16_t> ports = {config_.master_port};
  ports.insert(ports.end(), config_.next_ports.begin(), config_.next_ports.end());
  for (const std::uint16_t port : ports) {
    try {
      return coordinate(port);
    } catch (const rendezvous::AddressInUse&) {
      if (port == ports.back() && !may_lose()) throw;
      // Another ddprun of this user may be of this job, or about to end. What another user has is neither.
      if (may_lose() && rendezvous::is_strangers_port(port)) throw;
      if (port_owner_.empty())
        port_owner_ = "port " + std::to_string(port) + " of this machine is taken by " + rendezvous::port_owner(port);
    }
  }
}

void Coordination::listen(std::uint16_t port) {
  addresses_ = config_.store_addresses;
  if (addresses_.empty()) addresses_ = rendezvous::addresses_for(endpoint_, config_.local_addr);
  listeners_ = rendezvous::listen_on(addresses_, port);
}

void Coordination::start_parts() {
  parts_->start({.epoch = epoch_, .addresses = addresses_}, listeners_, file_ ? file_->held() : -1);
  coordinates_beside_ = !config_.etcd;
  if (!config_.etcd) warn_if_open(listeners_.port);
  listeners_ = {};
}

void Coordination::coordinate(std::uint16_t port) {
  if (parts_) {
    listen(port);
    return start_parts();
  }
  rendezvous::Coordinator::Options options;
  addresses_ = config_.store_addresses;
  if (addresses_.empty()) addresses_ = rendezvous::addresses_for(endpoint_, config_.local_addr);
  options.addresses = addresses_;
  options.port = port;
  options.hosts_workers_store = config_.workers_share_store;
  options.any_user = config_.any_user;
  options.log = log_.warning;
  options.record = [this](const rendezvous::RecordNode& node) { log_.record(node, proof_); };
  options.master_addr = is_given() ? config_.master_addr : config_.local_addr;
  coordinator_ =
      std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorConfig{.job = config_.job,
                                                                              .epoch = epoch_,
                                                                              .own_incarnation = incarnation_,
                                                                              .join_timeout = config_.timeouts.join,
                                                                              .last_call = config_.timeouts.last_call,
                                                                              .lost_after = config_.timeouts.lost},
                                                std::move(options));
}

// Says that anybody may join, unless the user wants it so or only this machine can reach the coordinator.
void Coordination::warn_if_open(std::uint16_t port) {
  if (config_.secret == "none" || membership_.kind() != rendezvous::Membership::Kind::Open) return;
  if (std::all_of(addresses_.begin(), addresses_.end(), rendezvous::is_loopback)) return;
  const bool has_id = config_.job.id != "none";
  log_.warning("any host that reaches port " + std::to_string(port) + (has_id ? " and knows the --rdzv-id" : "") +
               " may join this job, which has no secret: make one with --make-secret, or give --secret none");
}

rendezvous::LinkTarget Coordination::target() const {
  if (config_.etcd) {
    rendezvous::LinkTarget holder{.hosts = {}, .ports = {}, .job = rendezvous::job_tag(config_.job.id)};
    if (!holder_) return holder;
    holder.hosts = holder_->note.addresses;
    holder.ports = {holder_->note.port};
    return holder;
  }
  if (file_) return {.hosts = named_.addresses, .ports = {named_.port}, .job = rendezvous::job_tag(named_.epoch)};
  rendezvous::LinkTarget target{.hosts = {config_.master_addr}, .ports = {config_.master_port}, .job = {}};
  if (config_.next_ports.empty()) return target;
  target.ports.insert(target.ports.end(), config_.next_ports.begin(), config_.next_ports.end());
  target.job = rendezvous::job_tag(config_.job.id);
  return target;
}

std::unique_ptr<rendezvous::LinkClient> Coordination::link(rendezvous::asio::io_context& io,
                                                           rendezvous::LinkClient::Callbacks callbacks) {
  if (coordinator_) {
    return std::make_unique<rendezvous::LinkClient>(io, coordinator_->connect_agent(), std::move(callbacks));
  }
  if (coordinates_beside_ || is_held_here()) {
    return std::make_unique<rendezvous::LinkClient>(
        io, [this] { return parts_->link(); }, std::move(callbacks));
  }
  rendezvous::LinkTarget to = target();
  to.any_user = config_.any_user;
  return std::make_unique<rendezvous::LinkClient>(io, std::move(to), membership_, std::move(callbacks));
}

std::string Coordination::master_addr(const std::string& coordinator_address) const {
  if (!coordinator_address.empty()) return coordinator_address;
  if (!addresses_.empty() && addresses_.front() != "0.0.0.0") return addresses_.front();
  return rendezvous::offered_addresses("").front();
}

std::string Coordination::taken_by() const { return coordinates() || port_owner_.empty() ? "" : "; " + port_owner_; }

}  // namespace ddp::launcher
