// SPDX-License-Identifier: BSD-3-Clause
// A rank's links to the ranks on other nodes, and what the process's "ddp-peers" thread does about them: it lets ranks
// in that know the group's secret, rings this rank's bell when a message has moved, and passes on which rank is lost.
//
// The first ranks of any two nodes have a link for losses. When a rank is lost, all of its node learn of it through
// their segment; the first rank of that node tells those of the others, which note it in theirs. The end of such a link
// is the end of the rank at its other side. The end of any other link blames nobody: its cause comes by these.
//
// Owns all links until the group ends, so that abort() can end them from any thread. Any thread may call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/notes.hpp"
#include "collectives/host/nodes/formation.hpp"
#include "collectives/host/nodes/layout.hpp"
#include "collectives/host/nodes/link.hpp"

namespace ddp::collectives {

class Network {
 public:
  // `alarm` becomes readable when a rank of this node notes a loss.
  Network(OtherNodesPlan plan, rendezvous::Descriptor alarm, Membership& membership);
  ~Network();  // tells the other nodes that this rank leaves
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Layout& layout() const { return layout_; }
  // Returns the bytes of the smallest rings of any node, which is equal on all ranks.
  std::size_t ring_bytes() const { return ring_bytes_; }

  // Returns a descriptor that is readable when serve() has something to do.
  int events() const { return events_.get(); }
  void serve();
  // Links the first ranks of all nodes. Throws Failure.
  void link_first_ranks(const Notes& notes);

  // Returns a link to a rank that accepts it there.
  Link& connect(std::uint32_t to, LinkPurpose purpose);
  // Returns the link that a rank has made, or null as long as there is none.
  Link* find(std::uint32_t from, LinkPurpose purpose);
  // How many links others have made.
  std::uint64_t arrivals() const { return arrivals_; }
  // Rings this rank's bell from now on whenever bytes move over the link.
  void ring_for(const Link& link);

  // Descriptors for poll(): readable when a link has arrived or the group was aborted, until quiet(); readable once any
  // rank is lost.
  int arrival_event() const { return arrived_.get(); }
  void quiet() const;
  int alarm() const { return alarm_.get(); }

  // Ends all links but those for losses.
  void abort();

 private:
  struct LossLink {
    Link* link = nullptr;
    bool is_over = false;
    std::uint64_t word = 0;
    std::size_t heard = 0;  // bytes of `word`
  };

  void accept_all();
  void hear(std::uint64_t stranger);
  void admit(Stranger& stranger);
  void hear_of_losses(std::uint32_t node);
  void pass_on_loss();
  void tell(std::uint32_t node, std::uint64_t lost);
  void watch(int descriptor, std::uint32_t events, std::uint64_t what);
  bool has_all_loss_links();
  void ring() const;

  const Layout layout_;
  const std::size_t ring_bytes_;
  const std::vector<Endpoint> endpoints_;
  const LinkSecrets secrets_;
  Membership& membership_;
  rendezvous::Descriptor listener_, alarm_, arrived_, events_;
  std::atomic<std::uint64_t> arrivals_{0};

  std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, Stranger> strangers_;
  std::uint64_t next_stranger_ = 0;
  std::deque<Link> links_;
  std::map<std::pair<std::uint32_t, LinkPurpose>, Link*> made_by_others_;
  std::vector<LossLink> loss_links_;  // by node
  std::uint64_t told_ = 0;            // the loss that this rank has passed on
  bool aborted_ = false;
};

}  // namespace ddp::collectives
