// SPDX-License-Identifier: BSD-3-Clause
// A rank's place in a group, and what ends its waits: the group's deadline, abort() in this process, or the loss of a
// rank. Of the ranks that are lost, all others name the same one, the first.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives {

// The end of a call. The clock is read at the first wait that takes long, since most do not.
class Deadline {
 public:
  explicit Deadline(std::int64_t timeout_ms) : timeout_ms_(timeout_ms) {}
  bool has_passed();

 private:
  std::int64_t timeout_ms_;
  std::optional<std::chrono::steady_clock::time_point> at_;
};

class Membership {
 public:
  // `rank` is this rank's place in the segment. `group_ranks` are the ranks of the group that share the segment, by
  // place, `job_ranks` the numbers of all ranks of the group to show in error texts.
  Membership(const Segment& segment, std::uint32_t rank, std::vector<std::uint32_t> group_ranks,
             std::vector<std::int32_t> job_ranks);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  const Segment& segment() const { return segment_; }
  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return segment_.ranks(); }
  // Returns the rank in the group that has a place in the segment.
  std::uint32_t group_rank(std::uint32_t place) const { return group_ranks_[place]; }

  // The three steps of a rank's life in the group. The others notice both ends; after leave() they can still read what
  // this rank has published.
  void enter() const;
  void leave() const;
  void give_up();
  // Another rank's process has ended. It is lost, unless it had left before.
  void peer_ended(std::uint32_t peer) const;

  // Notes that a rank of the group is lost, unless another was before.
  void lose(std::uint32_t group_rank, LossReason reason) const;
  // Throws Failure for a rank of another node that has left.
  [[noreturn]] void end_wait_for(std::uint32_t group_rank) const { end_wait(lost_value(group_rank, LossReason::Left)); }

  // Called on any thread after a rank was noted as lost.
  std::function<void()> when_lost = [] {};

  bool has_given_up() const { return gave_up_; }
  // Returns whether a wait must end, whatever it waits for.
  bool is_over() const { return gave_up_ || segment_.header().lost != 0; }

  // Sleeps while a word has the value `seen`, at most `nanoseconds`, and notes a death that ends the sleep. A wait that
  // has slept before sleeps on the liveness words of all ranks, too.
  void sleep(const std::atomic<std::uint32_t>& word, std::uint32_t seen, long nanoseconds, bool has_slept) const;

  // Throws Failure if a wait must end. `ready` is asked again first, since a rank may publish and leave at once:
  // returns true if it says yes.
  template <typename Ready>
  [[nodiscard]] bool check(std::optional<std::uint32_t> waited_for, Deadline& deadline, Ready&& ready) const {
    const std::optional<std::uint64_t> lost = loss(waited_for);
    if (!gave_up_ && !lost && !deadline.has_passed()) return false;
    if (!gave_up_ && ready()) return true;
    end_wait(lost);
  }

 private:
  std::optional<std::uint64_t> loss(std::optional<std::uint32_t> waited_for) const;
  [[noreturn]] void end_wait(std::optional<std::uint64_t> lost) const;

  const Segment& segment_;
  const std::uint32_t rank_;
  const std::vector<std::uint32_t> group_ranks_;
  const std::vector<std::int32_t> job_ranks_;
  std::atomic<bool> gave_up_{false};
};

}  // namespace ddp::collectives
