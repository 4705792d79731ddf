// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/successors/result_log.hpp"

#include <atomic>
#include <cstdio>

#include "collectives/host/operations/slices.hpp"
#include "rendezvous/base/check.hpp"

namespace ddp::collectives {

ResultLog::ResultLog(const Membership& membership) : membership_(membership), segment_(membership.segment()) {}

bool ResultLog::add_call(std::uint64_t call) {
  if (!has_list_) segment_.allocate_call_list(membership_.rank());
  has_list_ = true;
  if (calls_ == kMostListedCalls) {
    outgrow();
    return true;
  }
  // The list has calls of earlier windows, too, under smaller numbers.
  std::atomic<std::uint64_t>& listed = segment_.call_list(membership_.rank())[calls_];
  const std::uint64_t before = listed.load(std::memory_order_relaxed);
  if (before >> 32 == call >> 32 && before != call) return false;
  listed.store(call, std::memory_order_relaxed);
  ++calls_;
  return true;
}

bool ResultLog::has_room(std::size_t bytes) const {
  return position_ + whole_lines(bytes) <= segment_.plan().log_bytes;
}

unsigned char* ResultLog::reserve(std::size_t bytes) {
  DDP_CHECK(has_room(bytes), position_, bytes);
  unsigned char* const place = segment_.log() + position_;
  position_ += whole_lines(bytes);
  if (position_ > with_memory_) {
    segment_.allocate_log(position_);
    with_memory_ = segment_.header().log_memory;
  }
  return place;
}

void ResultLog::begin_window() {
  begin_again();
  calls_ = start_calls_;
}

void ResultLog::keep_start(std::size_t bytes, std::size_t calls) {
  start_bytes_ = bytes;
  start_calls_ = calls;
}

void ResultLog::outgrow() const {
  membership_.forgo_successors(membership_.window());
  static std::atomic<bool> said{false};
  if (membership_.rank() != 0 || said.exchange(true)) return;
  std::fprintf(stderr,
               "libddp: the collectives since the last mark are more than the log holds (%llu bytes, %zu calls): until "
               "the next mark no new process can take a dead rank's place\n",
               static_cast<unsigned long long>(segment_.plan().log_bytes), kMostListedCalls);
}

}  // namespace ddp::collectives
