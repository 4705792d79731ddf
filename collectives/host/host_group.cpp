// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/host_group.hpp"

#include <numeric>
#include <utility>

#include "collectives/host/failure.hpp"
#include "collectives/host/operations/node_collectives.hpp"
#include "collectives/host/operations/numa_collectives.hpp"
#include "collectives/host/operations/shared_collectives.hpp"

using namespace ddp::collectives;

namespace {

std::vector<std::uint32_t> all_ranks(const Segment& segment) {
  std::vector<std::uint32_t> ranks(segment.ranks());
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

std::unique_ptr<Collectives> make_collectives(const Membership& membership, Network* network,
                                              std::optional<Layout> numa) {
  if (network != nullptr) return std::make_unique<NodeCollectives>(membership, *network);
  if (numa) return std::make_unique<NumaCollectives>(membership, std::move(*numa));
  return std::make_unique<SharedCollectives>(membership);
}

}  // namespace

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
      network(plan != nullptr ? std::make_unique<Network>(std::move(*plan), std::move(alarm), membership) : nullptr),
      collectives(make_collectives(membership, network.get(), std::move(numa))),
      messages(membership, network.get()) {
  ++live_groups_;
  collectives->steps().yields_first = true;
  collectives->set_meanwhile([this] { return messages.progress(); });
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
  if (network != nullptr)
    watched_.push_back(peer_watch_->watch_always(network->events(), [this] { network->serve(); }));
  peer_watch_->words().hold(segment_->liveness(membership.rank()));
  for (std::uint32_t rank = 0; rank < lifelines.size(); ++rank) {
    if (!lifelines[rank]) continue;
    watched_.push_back(peer_watch_->watch(std::move(lifelines[rank]), [this, rank] { membership.peer_ended(rank); }));
  }
}

void ddp_backend_group::link(const Notes& notes) {
  if (network != nullptr) network->link_first_ranks(notes);
}

void ddp_backend_group::abort() {
  membership.give_up();
  if (network != nullptr) network->abort();
  messages.give_up();
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
