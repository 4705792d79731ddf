// SPDX-License-Identifier: BSD-3-Clause
// Decides whether this node coordinates the job, and gives its agent the link to the coordinator, here or elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/meeting_file.hpp"
#include "launcher/coordination/parts.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/link/client.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {

class Coordination {
 public:
  // Takes lines for the user, on any thread.
  struct Lines {
    std::function<void(const std::string&)> warning;
    std::function<void(const std::string&)> info;
    std::function<void(const rendezvous::RecordNode&, const std::string& proof)> record;  // proof: "secret"
  };
  // What happens where the job's record is in etcd, on the loop of read_lines().
  struct EtcdEvents {
    std::function<void(const std::string& why)> moved;    // link() leads elsewhere from now on
    std::function<void(const std::string& why)> trouble;  // etcd does not answer
    std::function<void(const std::string& why)> refused;  // etcd cannot be used
  };
  // Starts the coordinator if this node is the one: in this process in a job of one node, else `parts` beside it. May
  // look up names. Throws rendezvous::Error if the port is taken or the secret cannot be used.
  Coordination(const LaunchConfig& config, const std::string& incarnation, Parts* parts, Lines log);

  // Takes in what the parts have to say, from now on.
  void read_lines(rendezvous::asio::io_context& io, EtcdEvents events);
  void stop_reading() { lines_.reset(); }

  // Returns whether it is known where the coordinator is, so that link() leads there.
  bool is_known() const { return !config_.etcd || holder_; }
  // With etcd: what this node's candidate has to know of its agent.
  void note(const rendezvous::AgentState& state, int node_rank);
  void note_left();
  // With etcd: there is no link, and what this node's candidate and agent said may be lost.
  void ask_again() const;

  // Looks again when nothing answers where the coordinator should be. What held the port, perhaps a ddprun that was
  // dying, may be gone by now; the meeting file may be of a job that is gone, or may name another node by now. Returns
  // whether link() leads elsewhere now, perhaps into this process.
  bool look_again();

  // Returns where the coordinator is, for messages: `10.0.0.1:29500`, or the meeting file; empty if it is in this
  // process, in a job of one node.
  const std::string& where() const { return where_; }
  // Returns whether the coordinator is in a process beside this one.
  bool is_beside() const { return coordinates_beside_; }
  std::unique_ptr<rendezvous::LinkClient> link(rendezvous::asio::io_context& io,
                                               rendezvous::LinkClient::Callbacks callbacks);
  // Returns this machine's numeric address to which the endpoint's host leads, if this node is to coordinate; empty if
  // it leads nowhere or to another machine.
  const std::string& own_endpoint() const { return own_endpoint_; }
  // Returns words about another process of this machine that has the endpoint's port, to go behind what is wrong with
  // what answers there; empty if there is none.
  std::string taken_by() const;
  // Returns MASTER_ADDR for this node's workers, where the job has none that is the same for all nodes.
  // `coordinator_address` is the address that this node's link goes to; empty if the coordinator is here.
  std::string master_addr(const std::string& coordinator_address) const;

 private:
  rendezvous::LinkTarget target() const;
  void meet_in_etcd();
  void on_holder(const Holder& holder);
  bool is_held_here() const { return holder_ && holder_->note.node == parts_->node(); }
  void meet_in_file();
  bool coordinate_in_file();
  // Returns whether several ddpruns on this machine may compete for the endpoint, so that losing it is no error.
  bool may_lose() const;
  // Returns whether the user gave MASTER_ADDR; otherwise it follows from how the nodes reach the coordinator.
  bool is_given() const;
  void try_to_coordinate();
  void listen(std::uint16_t port);
  void start_parts();
  void coordinate(std::uint16_t port);
  bool coordinates() const { return coordinator_ || coordinates_beside_; }
  void warn_if_open(std::uint16_t port);

  const LaunchConfig& config_;
  const std::string incarnation_;
  const Lines log_;
  const std::string epoch_;
  const rendezvous::NamedHost endpoint_;  // as given; its addresses are looked up once
  const bool is_host_;
  rendezvous::Membership membership_;
  std::string proof_ = "none";  // what nodes prove: "secret", "munge"
  std::string where_;
  std::string own_endpoint_;
  std::string port_owner_;              // why this node does not coordinate although it is the host
  std::vector<std::string> addresses_;  // that the coordinator here listens on
  std::optional<MeetingFile> file_;
  MeetingFile::Entry named_;                              // what it says, if another node coordinates
  std::unique_ptr<rendezvous::Coordinator> coordinator_;  // in a job of one node
  Parts* const parts_;                                    // in a job of several nodes
  rendezvous::Listeners listeners_;                       // until the parts have them
  bool coordinates_beside_ = false;                       // the parts run on this node
  std::unique_ptr<rendezvous::MessageChannel> lines_;
  EtcdEvents etcd_events_;
  std::optional<Holder> holder_;  // with etcd
  std::string told_epoch_;        // to the candidate
  int told_place_ = -1;
};

}  // namespace ddp::launcher
