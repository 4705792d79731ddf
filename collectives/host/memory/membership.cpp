// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/membership.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/host/failure.hpp"
#include "collectives/host/memory/liveness.hpp"
#include "collectives/host/memory/waiting.hpp"

namespace ddp::collectives {
namespace {

// Most waits are shorter. So only those that are not pay for sleeping on more than one word, and they learn of a death
// later by at most this.
constexpr long kFirstSleepNs = 1'000'000;

const char* in_words(LossReason reason) {
  switch (reason) {
    case LossReason::Died:
      return "its process ended";
    case LossReason::Left:
      return "it left the group";
    case LossReason::GaveUp:
      return "it gave up on the group";
  }
  return "it is lost";
}

}  // namespace

bool Deadline::has_passed() {
  const auto now = std::chrono::steady_clock::now();
  if (!at_) at_ = now + std::chrono::milliseconds(timeout_ms_);
  return now >= *at_;
}

Membership::Membership(const Segment& segment, std::uint32_t rank, std::vector<std::uint32_t> group_ranks,
                       std::vector<std::int32_t> job_ranks)
    : segment_(segment), rank_(rank), group_ranks_(std::move(group_ranks)), job_ranks_(std::move(job_ranks)) {}

void Membership::enter() const {
  Presence& presence = segment_.presence(rank_);
  publish_cpus(presence);
  presence.state = PresenceState::Present;
}

void Membership::leave() const {
  PresenceState present = PresenceState::Present;
  segment_.presence(rank_).state.compare_exchange_strong(present, PresenceState::Left);
  segment_.wake_all();
}

void Membership::give_up() {
  gave_up_ = true;
  segment_.presence(rank_).state = PresenceState::GaveUp;
  lose(group_rank(rank_), LossReason::GaveUp);
}

void Membership::lose(std::uint32_t group_rank, LossReason reason) const {
  segment_.lose(group_rank, reason);
  when_lost();
}

void Membership::peer_ended(std::uint32_t peer) const {
  if (segment_.presence(peer).state != PresenceState::Left) lose(group_rank(peer), LossReason::Died);
}

std::optional<std::uint64_t> Membership::loss(std::optional<std::uint32_t> waited_for) const {
  if (waited_for && holder_died(segment_.liveness(*waited_for))) peer_ended(*waited_for);
  if (const std::uint64_t lost = segment_.header().lost) return lost;
  if (waited_for && segment_.presence(*waited_for).state == PresenceState::Left)
    return lost_value(group_rank(*waited_for), LossReason::Left);
  return std::nullopt;
}

void Membership::sleep(const std::atomic<std::uint32_t>& word, std::uint32_t seen, long nanoseconds,
                       bool has_slept) const {
  if (!has_slept) return sleep_on(word, seen, std::min(nanoseconds, kFirstSleepNs));
  std::array<SleepWord, kMostSleepWords> words;
  words[0] = {&word, seen};
  std::size_t count = 1;
  for (std::uint32_t rank = 0; rank < size() && count < words.size(); ++rank) {
    const LivenessWord& liveness = segment_.liveness(rank);
    const std::uint32_t holder = liveness.holder;
    if (holder_died(liveness)) {
      peer_ended(rank);
      if (is_over()) return;
    } else if (holder != 0 && rank != rank_) {
      words[count++] = {&liveness.holder, holder};
    }
  }
  sleep_on_all({words.data(), count}, nanoseconds);
}

void Membership::end_wait(std::optional<std::uint64_t> lost) const {
  if (gave_up_) throw Failure(DDP_BACKEND_ABORTED, "the group was aborted");
  if (!lost) throw Failure(DDP_BACKEND_TIMEOUT, "the deadline has passed");
  const std::uint32_t rank = lost_rank(*lost);
  throw Failure(DDP_BACKEND_PEER_LOST, "its connection to rank " +
                                           std::to_string(rank < job_ranks_.size() ? job_ranks_[rank] : -1) +
                                           " broke: " + in_words(lost_reason(*lost)));
}

}  // namespace ddp::collectives
