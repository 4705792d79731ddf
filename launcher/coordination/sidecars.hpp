// SPDX-License-Identifier: BSD-3-Clause
// The leader's sidecars: in a job of several nodes, the coordinator and the store are processes of their own beside the
// agent. The keeper starts them when the agent asks, and again when one is killed; what connects them is made before
// and stays:
//
//     agents of other nodes ══ TCP ══▶ ddp-store ◀══ a pair of sockets ══▶ ddp-coordinator
//     this node's agent ◀══ a pair of sockets ══▶ ddp-coordinator; ddp-store writes there, too
//
// A message with a descriptor hands over a link; any other message is declared in sidecars.cpp or store_channel.cpp.
// The keeper holds both ends of each pair and the sockets that listen, so what is sent to a process that is not there
// waits for the next one. What a process had read when it was killed is sent again, or does no harm:
//
//   a link                    breaks with its reader; its agent links again
//   a store to open, keys     another coordinator asks for its round's store; another store reports itself, and the
//                             coordinator asks it again, or repeats the round if workers were connected
//   whose a connection is     the store asks again
//   who leads                 the agent asks again while it has no link
//   a line for the user       may be lost, as when there is no room for it
//
// The coordinator's journal is a file in this user's own folder, which goes with the job.
//
// Where the job's record is in etcd, every node has sidecars, and its coordinator is a candidate (candidate.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/candidate.hpp"
#include "launcher/guardian/supervisor.hpp"
#include "launcher/process/shared_page.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/journal/journal.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/message_channel.hpp"

namespace ddp::launcher {

class Sidecars {
 public:
  // Call it before the agent is forked.
  explicit Sidecars(const LaunchConfig& config);
  Sidecars(const Sidecars&) = delete;
  Sidecars& operator=(const Sidecars&) = delete;

  Supervisor& supervisor() { return supervisor_; }
  // The agent has ended by itself: lets the coordinator finish.
  void finish();
  // When nothing of the job is left on this node: removes the journal's file, or gives up the lease of the leader.
  void clear();

  // What the agent decides for them. They know the rest from their config.
  struct Plan {
    std::string epoch;
    std::vector<std::string> addresses;  // that the store listens on
  };
  // In the agent. Throws rendezvous::Error if the keeper cannot be asked. `kept_open` is a file that must stay open;
  // -1: none.
  void start(const Plan& plan, const rendezvous::Listeners& listeners, int kept_open) const;
  // Whether an earlier agent has started them, and how.
  bool are_here() const { return supervisor_.were_asked_for(); }
  Plan plan() const;
  // Hands the coordinator one end of a link and returns the other; none: errno says why.
  rendezvous::Descriptor link() const;
  // What they tell the user through the agent; and, with etcd, the agent.
  struct Lines {
    std::function<void(const std::string&)> warning;
    std::function<void(const rendezvous::RecordNode&)> record;
    std::function<void(const Leader&)> leader = {};
    std::function<void(const std::string&)> trouble = {};  // etcd does not answer
    std::function<void(const std::string&)> refused = {};  // etcd cannot be used
  };
  std::unique_ptr<rendezvous::MessageChannel> read_lines(rendezvous::asio::io_context& io, Lines lines) const;

  // In the agent, with etcd. Names this node's ddprun.
  const std::string& node() const { return id_; }
  void ask_for_leader() const;
  Candidacy& candidacy() { return *candidacy_.get(); }

 private:
  int run_coordinator(const Supervisor::Life& life);
  int run_store(const Supervisor::Life& life);
  std::unique_ptr<Candidate> make_candidate(std::function<void()> stand_by);
  int watch(const std::string& why);
  void use_etcd(Candidate& candidate, rendezvous::Coordinator::Options& options);
  void hand_over();
  void revoke(const Candidacy::Inheritance& lease) const;
  std::unique_ptr<rendezvous::Journal> make_journal(rendezvous::asio::io_context& io, const std::string& epoch,
                                                    bool must_exist) const;
  rendezvous::Listeners listeners() const;
  void tell(const std::string& frame) const;
  void warn(const std::string& line) const;

  const LaunchConfig& config_;
  const std::string id_;                  // names the journal's file, and this node among the candidates
  rendezvous::SocketPair agent_;          // left: the agent; right: the coordinator, and the store, which only writes
  rendezvous::SocketPair store_;          // left: the store; right: the coordinator
  SharedPage<std::atomic<int>> clients_;  // connections of the store
  SharedPage<Candidacy> candidacy_;
  Supervisor supervisor_;
};

}  // namespace ddp::launcher
