// SPDX-License-Identifier: BSD-3-Clause
// The memory that the ranks of a group share on one node: a sealed memfd, which has no name that a stranger could open
// and which the kernel frees with the last process that has it. Its address space is laid out for the largest need when
// the group is formed; only the first part has memory then. A rank gives memory to its ring and to its channels when it
// first uses them.
//
//     0          header       version, sizes, and the rank that was lost first
//     4096       counters     one line of 128 bytes for each rank: the step that it has published
//                presence     one line for each rank: whether it is there, and its CPUs
//                liveness     one line for each rank: a word that the kernel changes when its process dies
//                bells        one line for each rank: rung when a message has moved
//                channel ends one pair of lines for each pair of ranks: bytes written, bytes read
//     (a page)   rings        one for each rank, which alone writes it: what a collective moves
//                channels     one for each pair of ranks: messages from one to the other
//                heap         buffers of the program (shared_buffers.hpp)
//
// Counters only grow, and each field has one writer unless its comment says otherwise.
#pragma once

#include <linux/futex.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

inline constexpr std::size_t kLine = 128;  // bytes: processors fetch lines of 64 in pairs

// Sizes that all ranks of a group agree on.
struct SegmentPlan {
  std::uint32_t ranks = 0;
  std::uint64_t ring_bytes = 0;     // a power of 2
  std::uint64_t channel_bytes = 0;  // a power of 2
  std::uint64_t heap_bytes = 0;
};

// Returns the plan for a group of a process that has `live_groups` others already. The first groups get rings of
// `ring_bytes`; more get smaller ones, so that a group of every pair of 64 ranks, beside one of all, needs less than
// 512 MiB in all, in whatever order they are formed.
SegmentPlan plan_segment(std::uint32_t ranks, std::uint64_t ring_bytes, std::uint32_t live_groups);
// Returns the bytes of a ring: $DDP_RING_BYTES (a power of 2 of at least 4096), or twice the processor's L2 cache.
// Throws Failure if the variable is wrong.
std::uint64_t usual_ring_bytes();

struct alignas(kLine) Counters {
  // The step that this rank has reached: its contribution is complete, and it has read all it wants of earlier steps.
  std::atomic<std::uint64_t> published;
  std::array<std::atomic<std::uint64_t>, 4> calls;  // the rank's last collectives, by number modulo 4, see steps.hpp
  alignas(64) std::atomic<std::uint32_t> sleepers;  // waits for `published` in the kernel; changed by all ranks
};

enum class PresenceState : std::uint32_t { Absent = 0, Present = 1, Left = 2, GaveUp = 3 };
struct alignas(kLine) Presence {
  std::atomic<PresenceState> state;
  std::atomic<std::uint32_t> cpu_words;  // words of `cpus` that are set, once they are
  std::array<std::atomic<std::uint64_t>, 14> cpus;
  std::atomic<std::uint32_t> last_cpu;  // where the rank was when it last waited for long, plus 1; 0 before
};

// A rank's word, held as a robust futex is (liveness.hpp). 0 while it is not held.
struct alignas(kLine) LivenessWord {
  robust_list entry;  // an address in the holder's process, for the kernel only
  std::atomic<std::uint32_t> holder;
};

struct alignas(kLine) Bell {
  std::atomic<std::uint32_t> rings;     // changed by all ranks
  std::atomic<std::uint32_t> sleepers;  // waits of this rank's threads
};

struct ChannelEnds {
  alignas(64) std::atomic<std::uint64_t> written;  // by the sender
  alignas(64) std::atomic<std::uint64_t> read;     // by the receiver
};

enum class LossReason : std::uint32_t { Died = 1, Left = 2, GaveUp = 3 };
struct SegmentHeader {
  std::uint64_t version;
  SegmentPlan plan;
  // The rank that was lost first and why, see lost(); 0 while none was. Set once, by any rank.
  alignas(kLine) std::atomic<std::uint64_t> lost;
};

class Segment {
 public:
  // Makes a segment. Throws Failure, which says why the system refuses, or which control group has too little memory.
  static Segment create(const SegmentPlan& plan);
  // Maps a segment that another rank made. Throws Failure if it is not of this version and size.
  static Segment attach(rendezvous::Descriptor descriptor);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Segment& operator=(Segment&&) = delete;

  const SegmentPlan& plan() const { return plan_; }
  std::uint32_t ranks() const { return plan_.ranks; }
  int descriptor() const { return descriptor_.get(); }

  SegmentHeader& header() const { return *at<SegmentHeader>(0); }
  Counters& counters(std::uint32_t rank) const { return at<Counters>(counters_at_)[rank]; }
  Presence& presence(std::uint32_t rank) const { return at<Presence>(presence_at_)[rank]; }
  LivenessWord& liveness(std::uint32_t rank) const { return at<LivenessWord>(liveness_at_)[rank]; }
  Bell& bell(std::uint32_t rank) const { return at<Bell>(bells_at_)[rank]; }
  ChannelEnds& channel_ends(std::uint32_t from, std::uint32_t to) const {
    return at<ChannelEnds>(ends_at_)[to * plan_.ranks + from];
  }
  unsigned char* ring(std::uint32_t rank) const { return at<unsigned char>(rings_at_ + rank * plan_.ring_bytes); }
  unsigned char* channel(std::uint32_t from, std::uint32_t to) const {
    return at<unsigned char>(channels_at_ + (std::size_t{from} * plan_.ranks + to) * plan_.channel_bytes);
  }

  // Give memory to this rank's ring or channel, once. Throw Failure.
  void allocate_ring(std::uint32_t rank) const;
  void allocate_channel(std::uint32_t from, std::uint32_t to) const;

  static std::size_t whole_pages(std::size_t bytes);
  // Gives memory to one rank's part of a buffer in the heap, which has the same size for each rank, and maps the parts
  // of all ranks. Throws Failure.
  unsigned char* allocate_heap(std::uint64_t offset, std::size_t bytes, std::uint32_t rank) const;
  // Unmaps the buffer and frees the memory of this rank's part.
  void free_heap(unsigned char* view, std::uint64_t offset, std::size_t bytes, std::uint32_t rank) const;

  // Notes that a rank is lost, unless another was lost before, and wakes every wait of the group.
  void lose(std::uint32_t rank, LossReason reason) const;
  // Wakes all waits of all ranks, which look again at what they wait for.
  void wake_all() const;

 private:
  Segment(rendezvous::Descriptor descriptor, const SegmentPlan& plan);
  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  void allocate(std::size_t offset, std::size_t bytes, const std::string& purpose) const;

  rendezvous::Descriptor descriptor_;
  SegmentPlan plan_;
  std::size_t counters_at_ = 0, presence_at_ = 0, liveness_at_ = 0, bells_at_ = 0, ends_at_ = 0, rings_at_ = 0,
              channels_at_ = 0;
  std::size_t bytes_ = 0;  // without the heap, which is mapped in parts
  unsigned char* base_ = nullptr;
};

// What SegmentHeader::lost holds.
inline std::uint64_t lost_value(std::uint32_t rank, LossReason reason) {
  return std::uint64_t{static_cast<std::uint32_t>(reason)} << 32 | rank;
}
inline std::uint32_t lost_rank(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
inline LossReason lost_reason(std::uint64_t value) { return static_cast<LossReason>(value >> 32); }

// Wake the processes that sleep on a word, or sleep on it while it has the value `seen`, at most `nanoseconds`.
void wake_sleepers(const std::atomic<std::uint32_t>& word);
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, long nanoseconds);
// The half of a counter that changes with each step, for those two functions.
const std::atomic<std::uint32_t>& low_half(const std::atomic<std::uint64_t>& counter);

}  // namespace ddp::collectives
