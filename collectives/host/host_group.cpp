// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/host_group.hpp"

#include <numeric>
#include <utility>

#include "collectives/host/failure.hpp"

using namespace ddp::collectives;

namespace {

std::vector<std::uint32_t> all_ranks(const Segment& segment) {
  std::vector<std::uint32_t> ranks(segment.ranks());
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

}  // namespace

ddp_backend_group::OtherNodes::OtherNodes(OtherNodesPlan plan, ddp::rendezvous::Descriptor alarm,
                                          Membership& membership, SharedCollectives& shared)
    : ring_bytes(plan.ring_bytes),
      network(std::move(plan), std::move(alarm), membership),
      transfers(network, membership),
      collectives(network.layout(), ring_bytes, shared, transfers) {}

ddp_backend_group::ddp_backend_group(const std::shared_ptr<const Segment>& segment, std::uint32_t rank,
                                     std::vector<std::int32_t> job_ranks, std::uint32_t ranks_on_node,
                                     std::optional<Layout> numa)
    : ddp_backend_group(segment, rank, all_ranks(*segment), std::move(job_ranks), ranks_on_node, nullptr, {},
                        std::move(numa)) {}

ddp_backend_group::ddp_backend_group(std::shared_ptr<const Segment> segment, std::uint32_t place,
                                     std::vector<std::uint32_t> ranks, std::vector<std::int32_t> job_ranks,
                                     std::uint32_t ranks_on_node, std::unique_ptr<OtherNodesPlan> plan,
                                     ddp::rendezvous::Descriptor alarm, std::optional<Layout> numa)
    : segment_(std::move(segment)),
      ranks_on_node_(ranks_on_node),
      membership(*segment_, place, std::move(ranks), std::move(job_ranks)),
      collectives(membership, std::move(numa)),
      other_nodes(plan != nullptr
                      ? std::make_unique<OtherNodes>(std::move(*plan), std::move(alarm), membership, collectives)
                      : nullptr),
      messages(membership, other_nodes != nullptr ? &other_nodes->network : nullptr) {
  ++live_groups_;
  collectives.steps().yields_first = true;
  // A rank that waits in a collective goes on sending what it was asked to send.
  collectives.steps().meanwhile = [this] {
    const bool sends = other_nodes != nullptr && other_nodes->transfers.pump();
    return messages.progress() || sends;
  };
  if (other_nodes != nullptr) other_nodes->transfers.meanwhile = [this] { return messages.progress(); };
  membership.enter();
}

ddp_backend_group::~ddp_backend_group() {
  for (const std::uint64_t number : watched_) peer_watch_->forget(number);
  membership.leave();
  if (peer_watch_ != nullptr) peer_watch_->words().release(segment_->liveness(membership.rank()));
  --live_groups_;
}

void ddp_backend_group::watch(std::vector<ddp::rendezvous::Descriptor> lifelines,
                              ddp::rendezvous::Descriptor own_lifeline) {
  own_lifeline_ = std::move(own_lifeline);
  peer_watch_ = PeerWatch::of_this_process();
  if (other_nodes != nullptr) {
    Network& network = other_nodes->network;
    watched_.push_back(peer_watch_->watch_always(network.events(), [&network] { network.serve(); }));
  }
  peer_watch_->words().hold(segment_->liveness(membership.rank()));
  for (std::uint32_t rank = 0; rank < lifelines.size(); ++rank) {
    if (!lifelines[rank]) continue;
    watched_.push_back(peer_watch_->watch(std::move(lifelines[rank]), [this, rank] { membership.peer_ended(rank); }));
  }
}

void ddp_backend_group::link(const Notes& notes) {
  if (other_nodes != nullptr) other_nodes->network.link_first_ranks(notes);
}

void ddp_backend_group::abort() {
  membership.give_up();
  if (other_nodes != nullptr) other_nodes->network.abort();
  messages.give_up();
}

void ddp_backend_group::start(std::uint32_t what, std::int64_t timeout_ms) {
  collectives.steps().start(what, timeout_ms, most_looks());
  if (other_nodes != nullptr) other_nodes->transfers.start(collectives.steps().call(), timeout_ms, most_looks());
}

int ddp_backend_group::most_looks() {
  if (const int known = most_looks_.load(std::memory_order_relaxed); known >= 0) return known;
  for (std::uint32_t rank = 0; rank < segment_->ranks(); ++rank) {
    if (segment_->presence(rank).state == PresenceState::Absent) return 0;
  }
  static const std::optional<double> quota = cpu_quota();
  const bool own = has_own_cpu(*segment_, membership.rank(), ranks_on_node_, quota);
  most_looks_ = own ? kMostLooks : 0;
  return most_looks_;
}
