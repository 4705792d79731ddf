// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/host_group.hpp"

#include <utility>

using namespace ddp::collectives;

ddp_backend_group::ddp_backend_group(std::shared_ptr<const Segment> segment, std::uint32_t rank,
                                     std::vector<std::int32_t> job_ranks, std::uint32_t ranks_on_node)
    : segment_(std::move(segment)),
      ranks_on_node_(ranks_on_node),
      membership(*segment_, rank, std::move(job_ranks)),
      collectives(membership),
      messages(membership) {
  ++live_groups_;
  // A rank that waits in a collective goes on sending what it was asked to send.
  collectives.steps().meanwhile = [this] { return messages.progress(); };
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
  peer_watch_->words().hold(segment_->liveness(membership.rank()));
  for (std::uint32_t rank = 0; rank < lifelines.size(); ++rank) {
    if (!lifelines[rank]) continue;
    watched_.push_back(peer_watch_->watch(std::move(lifelines[rank]), [this, rank] { membership.peer_ended(rank); }));
  }
}

void ddp_backend_group::abort() {
  membership.give_up();
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
