// SPDX-License-Identifier: BSD-3-Clause
// The protocol below all collectives. All ranks of a group go through the same steps, numbered from 1. In a step a rank
//
//     begin()     gets the same range of every ring, and waits until nobody needs what was there
//     own()       may write its contribution into its own ring
//     publish()   says so: its counter becomes the step's number
//     await()     waits until another rank has published the step; of() is that rank's contribution
//
// A rank that publishes step s has read all that it wants of the steps before s. So a range of the rings may be used
// again for step s once every rank has published a later step than the one that used it last. A rank publishes every
// step, also where it contributes nothing. begin() may publish a step in between, so what a rank wants of the steps
// before it has read by then; begin_two() is for a collective that reads one step while it writes the next.
//
// Next to its counter, each rank shows its last few collectives. The fingerprint of a collective covers the collectives
// before it as well (a rolling hash). A rank compares them in each wait for another rank, so ranks that disagree about
// a collective get an error in it, or at the latest in the next one in which all ranks wait for each other.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"
#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/segment.hpp"
#include "collectives/host/memory/waiting.hpp"
#include "rendezvous/base/check.hpp"

namespace ddp::collectives {

struct Step {
  std::uint64_t number = 0;
  std::size_t offset = 0;  // in every ring
};

class Steps {
 public:
  explicit Steps(const Membership& membership);

  // Begins a collective. `what` is a number that is equal on all ranks if they call the same collective.
  void start(std::uint32_t what, std::int64_t timeout_ms, int most_looks);

  // Returns the number of the collective << 32 | its fingerprint. All ranks have the same if they have called the same
  // collectives from the beginning.
  std::uint64_t call() const { return call_; }

  // Returns the next step, or the first of several that share a range: it is free once the last one is over. `bytes` is
  // equal on all ranks, and at most most_bytes().
  Step begin(std::size_t bytes, std::uint64_t steps = 1);
  // Returns the next two steps, in ranges that do not overlap. Together they need at most most_bytes_of_two().
  std::pair<Step, Step> begin_two(std::size_t first_bytes, std::size_t second_bytes);
  void publish(const Step& step);
  void await(std::uint32_t rank, const Step& step);
  void await_all(const Step& step);

  // Returns the error of this rank if another one calls something else.
  Failure disagreement(std::uint32_t rank) const;

  unsigned char* own(const Step& step) const { return of(membership_.rank(), step); }
  unsigned char* of(std::uint32_t rank, const Step& step) const {
    // Otherwise it may be written over by now.
    DDP_CHECK(in_use_.empty() || step.number >= in_use_.front().first, step.number, in_use_.front().first);
    return segment_.ring(rank) + step.offset;
  }
  // Half a ring, so that a rank writes one half while others still read the other.
  std::size_t most_bytes() const { return segment_.plan().ring_bytes / 2; }
  std::size_t most_bytes_of_two() const { return most_bytes() - 2 * kLine - gap(); }

  // Called in every wait that takes long. Returns whether it wants to be called again soon.
  std::function<bool()> meanwhile = [] { return false; };
  // Whether a rank without a CPU of its own yields before it sleeps.
  bool yields_first = false;

 private:
  struct Range {
    std::uint64_t first, last;  // the steps that use it
    std::size_t offset, end;
    std::uint64_t call;
  };

  std::size_t gap() const;  // between the ranges of two steps
  void await_number(std::uint32_t rank, std::uint64_t number);
  void await_slowly(std::uint32_t rank, std::uint64_t number);
  void compare_calls(std::uint32_t rank, std::uint64_t call) const;
  void wait_until_free(const Range& range);

  const Membership& membership_;
  const Segment& segment_;
  std::uint64_t next_ = 1;
  std::size_t position_ = 0;       // where the next step's range begins, if it fits
  std::deque<Range> in_use_;       // the oldest first
  std::uint64_t all_reached_ = 0;  // every rank has published this step
  std::uint64_t call_ = 0;         // see call()
  Patience patience_;
  Yields yields_;
  Deadline deadline_{0};
  bool has_ring_ = false;
};

}  // namespace ddp::collectives
