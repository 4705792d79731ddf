// SPDX-License-Identifier: BSD-3-Clause
// An agent's way to the job's coordinator. In a job of one node the coordinator is in this process. In a job of several
// nodes a Meeting finds the leader, and if this node is to lead, its sidecars are started.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/meeting.hpp"
#include "launcher/coordination/sidecars.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/link/client.hpp"

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
  // `sidecars` is null in a job of one node. May look up names. Throws rendezvous::Error if the port is taken or the
  // secret cannot be used.
  Coordination(const LaunchConfig& config, const std::string& incarnation, Sidecars* sidecars, Lines log);

  // Takes in what the sidecars have to say, from now on.
  void read_lines(rendezvous::asio::io_context& io, EtcdEvents events);
  void stop_reading() { lines_.reset(); }

  // Returns whether it is known where the coordinator is, so that link() leads there.
  bool is_known() const { return !meeting_ || meeting_->is_known(); }
  // Notes what this node's candidate has to know of its agent, if there is one.
  void note(const rendezvous::AgentState& state, int node_rank) {
    if (sidecars_) sidecars_->candidacy().note(state.epoch, node_rank);
  }
  void note_left() {
    if (sidecars_) sidecars_->candidacy().leave();
  }
  // There is no link, and news of this node's candidate may be lost.
  void ask_again() {
    if (meeting_) meeting_->ask_again();
  }

  // Looks again when nothing answers where the coordinator should be. What held the port, perhaps a ddprun that was
  // dying, may be gone by now; the meeting file may be of a job that is gone, or may name another node by now. Returns
  // whether link() leads elsewhere now, perhaps to this node.
  bool look_again();

  // Returns where the coordinator is, for messages: `10.0.0.1:29500`, or the meeting file; empty in a job of one node.
  std::string where() const { return meeting_ ? meeting_->where() : ""; }
  // Returns whether this node leads: then the coordinator's process runs beside this one.
  bool is_beside() const { return has_sidecars_ && meeting_->leads(); }
  std::unique_ptr<rendezvous::LinkClient> link(rendezvous::asio::io_context& io,
                                               rendezvous::LinkClient::Callbacks callbacks);
  std::string own_endpoint() const { return meeting_ ? meeting_->own_endpoint() : ""; }
  // Returns words to go behind what is wrong with what answers at the endpoint: which other process of this machine has
  // its port. Empty if there is none.
  std::string taken_by() const { return !meeting_ || is_beside() ? "" : meeting_->taken_by(); }
  // Returns MASTER_ADDR for this node's workers, where the job has none that is the same for all nodes.
  // `coordinator_address` is the address that this node's link goes to; empty if the coordinator is here.
  std::string master_addr(const std::string& coordinator_address) const;

 private:
  bool try_to_lead();
  void on_leader(const Leader& leader);
  void coordinate_here(const std::string& incarnation);
  void warn_if_open(std::uint16_t port) const;

  const LaunchConfig& config_;
  const Lines log_;
  const std::string epoch_;  // names the coordinator that this node starts
  rendezvous::Membership membership_;
  std::string proof_ = "none";                            // what nodes prove: "secret", "munge"
  std::vector<std::string> addresses_;                    // on which the store of this node listens
  std::unique_ptr<rendezvous::Coordinator> coordinator_;  // in a job of one node
  Sidecars* const sidecars_;                              // in a job of several nodes
  bool has_sidecars_ = false;                             // they run on this node
  std::unique_ptr<Meeting> meeting_;                      // in a job of several nodes
  std::unique_ptr<rendezvous::MessageChannel> lines_;
  std::function<void(const std::string& why)> moved_;
};

}  // namespace ddp::launcher
