// SPDX-License-Identifier: BSD-3-Clause
// The results of all calls of a group's window, in the segment. Every rank reads results from the log, so keeping them
// costs no copy, and a process that takes a dead rank's place finds there what its calls gave.
//
//     call lists   ┌ rank 0 ┐┌ rank 1 ┐ ...   what each rank called in this window, each written by its rank only
//     log          ┌ chunk 1 ┐┌ chunk 2 ┐...  each chunk has a slice of every rank that gives something
//
// All ranks make the same calls, so each computes by itself where a chunk lies. What came before the first mark stays,
// for processes that begin at the start. Behind that the log begins again at each mark. Its memory stays, so that no
// window but the first two pays for page faults.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives {

class ResultLog {
 public:
  explicit ResultLog(const Membership& membership);

  // Adds a call to this rank's list: Steps::call(). Returns false if the process that
  // had this place before called something else under that number, and changes nothing then.
  bool add_call(std::uint64_t call);

  // Return the most bytes that the start may have if it is kept, and those that a chunk may have: both have room.
  std::size_t most_start() const { return segment_.plan().log_bytes / 2; }
  std::size_t most_chunk() const { return segment_.plan().log_bytes - most_start(); }
  // Returns whether a chunk of this size has room behind those before.
  bool has_room(std::size_t bytes) const;
  // Returns the place of the next chunk, which has memory. Throws Failure.
  unsigned char* reserve(std::size_t bytes);

  // Notes that the log is too small for this window, which makes it one without successors. Rank 0 of the group says so
  // once on stderr.
  void outgrow() const;
  // Begin again behind the start, in this window or in the next one. No rank needs what is there.
  void begin_again() { position_ = start_bytes_; }
  void begin_window();
  // Keeps the first `bytes` of the log and the first `calls` of the list from now on: the start.
  void keep_start(std::size_t bytes, std::size_t calls);
  std::size_t position() const { return position_; }

 private:
  const Membership& membership_;
  const Segment& segment_;
  std::size_t position_ = 0;
  std::size_t with_memory_ = 0;
  std::size_t calls_ = 0;  // listed: those of the start, and of this window
  std::size_t start_bytes_ = 0, start_calls_ = 0;
  bool has_list_ = false;
};

}  // namespace ddp::collectives
