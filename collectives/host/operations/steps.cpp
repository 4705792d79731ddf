// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/steps.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/host/operations/slices.hpp"

namespace ddp::collectives {
namespace {

constexpr long kSleepWithMessagesNs = 200'000;
constexpr std::uint64_t kLeastRingForGap = 256 << 10;

std::uint32_t add_to_fingerprint(std::uint32_t fingerprint, std::uint32_t what) {
  const std::uint32_t mixed = (fingerprint ^ what) * 0x9e3779b1U;
  return mixed ^ mixed >> 15;
}

std::atomic<std::uint64_t>& shown_call(Counters& counters, std::uint64_t call) {
  return counters.calls[(call >> 32) % counters.calls.size()];
}

}  // namespace

Steps::Steps(const Membership& membership) : membership_(membership), segment_(membership.segment()) {}

void Steps::start(std::uint32_t what, std::int64_t timeout_ms, int most_looks) {
  const std::uint64_t number = (call_ >> 32) + 1;
  call_ = number << 32 | add_to_fingerprint(static_cast<std::uint32_t>(call_), what);
  if (patience_.most != most_looks) patience_ = {.most = most_looks, .looks = most_looks};
  deadline_ = Deadline(timeout_ms);
  if (membership_.has_given_up()) throw Failure(DDP_BACKEND_ABORTED, "the group was aborted");
}

// An odd number of lines, so that what a rank reads in the first range and writes in the second does not lie a power of
// 2 apart: then lines of both would take each other's place in the first cache, and a reduction takes three times as
// long.
std::size_t Steps::gap() const { return segment_.plan().ring_bytes >= kLeastRingForGap ? 17 * kLine : 0; }

std::pair<Step, Step> Steps::begin_two(std::size_t first_bytes, std::size_t second_bytes) {
  const std::size_t second_at = whole_lines(first_bytes) + gap();
  const Step first = begin(second_at + second_bytes, 2);
  return {first, {first.number + 1, first.offset + second_at}};
}

Step Steps::begin(std::size_t bytes, std::uint64_t steps) {
  if (bytes == 0) return {std::exchange(next_, next_ + steps), 0};
  DDP_CHECK(bytes <= most_bytes(), bytes, most_bytes());
  if (!has_ring_) {
    segment_.allocate_ring(membership_.rank());
    has_ring_ = true;
  }
  const std::size_t rounded = whole_lines(bytes);
  const bool fits = position_ + rounded <= segment_.plan().ring_bytes;
  Range range = {0, 0, fits ? position_ : 0, (fits ? position_ : 0) + rounded, call_};
  wait_until_free(range);
  position_ = range.end;
  range.first = std::exchange(next_, next_ + steps);
  range.last = next_ - 1;
  in_use_.push_back(range);
  return {range.first, range.offset};
}

// Waits until every rank has read what is in this range.
void Steps::wait_until_free(const Range& range) {
  std::uint64_t last = 0;  // the last step that used the range
  const bool begins_again = range.offset < position_;
  while (!in_use_.empty()) {
    const Range& oldest = in_use_.front();
    // At the ring's beginning, what is behind the position is left over from the round before.
    const bool left_over = begins_again && oldest.offset >= position_;
    if (!left_over && (oldest.offset >= range.end || range.offset >= oldest.end)) break;
    last = oldest.last;
    in_use_.pop_front();
  }
  if (last == 0 || all_reached_ > last) return;
  std::optional<std::uint64_t> call;  // the collective of the step after the last one, if this rank knows
  if (last + 1 == next_) {
    publish({next_++, 0});  // the others need a step to say that they have read the step just before this one
    call = call_;
  } else if (!in_use_.empty() && in_use_.front().first == last + 1) {
    call = in_use_.front().call;
  }
  for (std::uint32_t rank = 0; rank < membership_.size(); ++rank) {
    if (rank == membership_.rank()) continue;
    await_number(rank, last + 1);
    if (call) compare_calls(rank, *call);
  }
  all_reached_ = last + 1;
}

void Steps::publish(const Step& step) {
  Counters& own = segment_.counters(membership_.rank());
  shown_call(own, call_).store(call_, std::memory_order_relaxed);
  // Sequentially consistent, as the sleeper's two accesses are: either this rank sees the sleeper, or the sleeper sees
  // the step.
  own.published.store(step.number);
  if (own.sleepers.load() != 0) wake_sleepers(low_half(own.published));
}

void Steps::await(std::uint32_t rank, const Step& step) {
  await_number(rank, step.number);
  compare_calls(rank, call_);
}

void Steps::await_all(const Step& step) {
  for (std::uint32_t rank = 0; rank < membership_.size(); ++rank) {
    if (rank != membership_.rank()) await(rank, step);
  }
  all_reached_ = step.number;
}

void Steps::await_number(std::uint32_t rank, std::uint64_t number) {
  if (segment_.counters(rank).published.load(std::memory_order_acquire) < number) await_slowly(rank, number);
}

void Steps::await_slowly(std::uint32_t rank, std::uint64_t number) {
  Counters& counters = segment_.counters(rank);
  const auto ready = [&] { return counters.published.load(std::memory_order_acquire) >= number; };
  const bool may_yield = yields_first && patience_.most == 0;
  bool hurries = false, has_yielded = false, has_slept = false, has_moved = false;
  const auto check = [&] {
    if (patience_.most > 0 && !has_slept && !has_moved) has_moved = leave_cpu_of(segment_, membership_.rank(), rank);
    hurries = meanwhile();
    return membership_.check(rank, deadline_, ready);
  };
  const auto sleep = [&] {
    if (may_yield && !std::exchange(has_yielded, true) && yields_.until(ready)) return;
    counters.sleepers.fetch_add(1);
    const std::uint64_t seen = counters.published.load();
    // What ends a wait is set before the wake-up, so it is looked at after this rank counts as a sleeper.
    if (seen < number && !membership_.is_over()) {
      membership_.sleep(low_half(counters.published), static_cast<std::uint32_t>(seen),
                        hurries ? kSleepWithMessagesNs : kLongestSleepNs, has_slept);
    }
    counters.sleepers.fetch_sub(1);
    has_slept = true;
    publish_place(segment_.presence(membership_.rank()));
  };
  wait_until(patience_, ready, check, sleep);
}

// The other rank has published a step of the collective `call`, and may be so far ahead that it shows only later
// collectives. The fingerprints of later collectives cover `call`, so this rank notices a disagreement in one of them.
void Steps::compare_calls(std::uint32_t rank, std::uint64_t call) const {
  const std::uint64_t theirs = shown_call(segment_.counters(rank), call).load(std::memory_order_relaxed);
  if (theirs == call || static_cast<std::int32_t>((theirs >> 32) - (call >> 32)) > 0) return;
  throw disagreement(rank);
}

Failure Steps::disagreement(std::uint32_t rank) const {
  return ranks_disagree(membership_.group_rank(rank), membership_.group_rank(membership_.rank()));
}

}  // namespace ddp::collectives
