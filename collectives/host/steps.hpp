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
// step, also where it contributes nothing.
//
// Next to its counter, each rank shows which collective it calls, and the others compare: ranks that disagree get an
// error in most cases, where they would wait for each other until the deadline.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "collectives/host/membership.hpp"
#include "collectives/host/segment.hpp"
#include "collectives/host/waiting.hpp"

namespace ddp::collectives {

struct Step {
  std::uint64_t number = 0;
  std::size_t offset = 0;  // in every ring
};

class Steps {
 public:
  explicit Steps(const Membership& membership);

  // Begins a collective. `what` is a number that is equal on all ranks if they call the same.
  void start(std::uint32_t what, std::int64_t timeout_ms, int most_looks);

  // Returns the next step. `bytes` is equal on all ranks, and at most most_bytes().
  Step begin(std::size_t bytes);
  void publish(const Step& step);
  void await(std::uint32_t rank, const Step& step);
  void await_all(const Step& step);

  unsigned char* own(const Step& step) const { return of(membership_.rank(), step); }
  unsigned char* of(std::uint32_t rank, const Step& step) const { return segment_.ring(rank) + step.offset; }
  // Half a ring, so that the two steps of a collective fit.
  std::size_t most_bytes() const { return segment_.plan().ring_bytes / 2; }

  // Called in every wait that takes long. Returns whether it wants to be called again soon.
  std::function<bool()> meanwhile = [] { return false; };

 private:
  struct Range {
    std::uint64_t step;
    std::size_t offset, end;
  };

  void await_number(std::uint32_t rank, std::uint64_t number);
  void await_slowly(std::uint32_t rank, std::uint64_t number);
  void compare_calls(std::uint32_t rank) const;
  void wait_until_free(const Range& range);

  const Membership& membership_;
  const Segment& segment_;
  std::uint64_t next_ = 1;
  std::size_t position_ = 0;       // where the next step's range begins, if it fits
  std::deque<Range> in_use_;       // the oldest first
  std::uint64_t all_reached_ = 0;  // every rank has published this step
  std::uint64_t call_ = 0;         // number of the collective << 32 | what
  Patience patience_;
  Deadline deadline_{0};
  bool has_ring_ = false;
};

}  // namespace ddp::collectives
