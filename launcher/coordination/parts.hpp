// SPDX-License-Identifier: BSD-3-Clause
// The coordinator and the store as processes of their own, in a job of several nodes, on the endpoint's node. The
// keeper starts them when the agent asks, and again when one is killed; what connects them is made before and stays:
//
//     agents of other nodes ══ TCP ══▶ ddp-store ── links, over a pair of sockets ──▶ ddp-coordinator
//     this node's agent ────────── ends of its links ───────────────────────────────────▶   │
//     this node's agent ◀───────── lines for the user ─────────────────────────────────────┘ (and from ddp-store)
//
// The keeper holds both ends of each pair and the sockets that listen, so nothing is lost while one of the processes is
// not there: connections wait. The coordinator's journal is a file in this user's own folder, which goes with the job.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/process/siblings.hpp"
#include "rendezvous/coordinator/coordinator_core.hpp"
#include "rendezvous/journal/journal.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/message_channel.hpp"

namespace ddp::launcher {

class Parts {
 public:
  // Call it before the agent is forked.
  explicit Parts(const LaunchConfig& config);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Siblings& siblings() { return siblings_; }
  // Removes the journal.
  void remove_files() const;

  // What the agent decides for them. They know the rest from their config.
  struct Plan {
    std::string epoch;
    std::vector<std::string> addresses;  // that the store listens on
  };
  // In the agent. Throws rendezvous::Error if the keeper cannot be asked. `held` is a file that must stay open; -1:
  // none.
  void start(const Plan& plan, const rendezvous::Listeners& listeners, int held) const;
  // Whether an earlier agent has started them, and how.
  bool are_here() const { return siblings_.were_asked_for(); }
  Plan plan() const;
  // Hands the coordinator one end of a link and returns the other; none: errno says why.
  rendezvous::Descriptor link() const;
  // What they tell the user through the agent.
  struct Lines {
    std::function<void(const std::string&)> warning;
    std::function<void(const rendezvous::RecordNode&)> record;
  };
  std::unique_ptr<rendezvous::MessageChannel> read_lines(rendezvous::asio::io_context& io, Lines lines) const;

 private:
  struct Pair {
    rendezvous::Descriptor left, right;
  };
  static Pair make_pair();
  int run_coordinator(const Siblings::Life& life);
  int run_store(const Siblings::Life& life);
  std::unique_ptr<rendezvous::Journal> make_journal(rendezvous::asio::io_context& io, const std::string& epoch,
                                                    bool is_first) const;
  rendezvous::Listeners listeners() const;
  void tell(const std::string& line) const;

  const LaunchConfig& config_;
  const std::string journal_id_;
  Pair links_;                           // left: the store; right: the coordinator
  Pair own_;                             // left: the agent; right: the coordinator
  Pair lines_;                           // left: both; right: the agent
  std::atomic<int>* clients_ = nullptr;  // connections of the store, in shared memory
  Siblings siblings_;
};

}  // namespace ddp::launcher
