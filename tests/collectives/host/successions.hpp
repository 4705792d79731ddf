// SPDX-License-Identifier: BSD-3-Clause
// A group that awaits successors, whose ranks are processes forked from the test, and what outlives them: the segment,
// and a record for each rank, as kept memory holds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/host/backend.hpp"
#include "collectives/host/host_group.hpp"
#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives::test {

// What a rank keeps. Of its two records the one of an even step is in the first place, so that a process that dies
// while it writes one leaves the other.
struct Kept {
  struct Record {
    std::uint64_t step;
    Position position;
    std::uint64_t digest;  // a hash of all results before the step
  };
  Record records[2];
  std::atomic<std::uint64_t> complete;  // records that have been written; the last one counts
  std::atomic<std::uint64_t> result;    // the digest of all results, once the rank has ended
};

class Succession {
 public:
  explicit Succession(std::uint32_t ranks, std::uint64_t log_bytes = kLogBytes);
  ~Succession();
  Succession(const Succession&) = delete;
  Succession& operator=(const Succession&) = delete;

  std::uint32_t ranks() const { return segment_.ranks(); }
  const Segment& segment() const { return segment_; }
  Kept& kept(std::uint32_t rank) const { return kept_[rank]; }

  // Enter the group in this process, as the first process of a rank or as a later one. The group is used until the
  // process ends.
  ddp_backend_group* enter(std::uint32_t rank) const;
  ddp_backend_group* succeed(std::uint32_t rank, const Position& position) const;

  // Runs a program of `steps` training steps, each a mark and several collectives that depend on all results before,
  // from where the rank's record says. Returns 0, or prints what went wrong. `is_first` is false for a successor.
  int work(std::uint32_t rank, std::uint64_t steps, bool is_first) const;

 private:
  Segment segment_;
  Kept* kept_ = nullptr;
};

// Runs the program on `ranks` ranks, and kills ranks at any instruction, one or two at once, until `kills` were killed
// or the program has ended; a new process takes each one's place. Checks that no rank saw an error, that all results
// are those of a run without kills, and that neither memory nor descriptors grow. Prints how many were killed if
// `DDPRUN_HOST_SUCCESSIONS` is set.
void kill_and_succeed(std::uint32_t ranks, int kills);

}  // namespace ddp::collectives::test
