// SPDX-License-Identifier: BSD-3-Clause
// Buffers of the program that lie in the group's segment, so that ranks need not copy what they contribute. All ranks
// allocate one together. Each gets a part of its own, and maps the parts of all others:
//
//     heap of the segment   ┌ buffer 1: rank 0 ┐┌ rank 1 ┐ ... ┌ buffer 2: rank 0 ┐ ...
//
// The heap is address space of the file, without memory until it is allocated, and large enough that no part of it is
// used twice. Ranks that pass the same place in one buffer, and only those, may use each other's memory in place; the
// collective compares places first (SharedCollectives), since a rank may pass any memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/operations/steps.hpp"

namespace ddp::collectives {

class SharedBuffers {
 public:
  explicit SharedBuffers(const Membership& membership) : membership_(membership) {}
  ~SharedBuffers();
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  // A collective: all ranks get memory of this size, or all get null if one of them cannot; then a line on stderr says
  // why, once in a process. Throws Failure.
  unsigned char* allocate(std::size_t bytes, Steps& steps);
  // Frees this rank's memory, and returns whether it was one of these. Any thread, but none may be in a collective that
  // uses it.
  bool free(void* memory);

  // Returns whether this rank has ever allocated; then all ranks have.
  bool were_used() const { return next_ > 0; }
  // Returns a number for the place of this memory that is equal on all ranks if they pass the same part of the same
  // buffer; 0 if it is any other memory.
  std::uint64_t place_of(const void* memory, std::size_t bytes) const;
  // Returns another rank's memory at the place, and the distance from one rank's to the next one's.
  unsigned char* of_rank(std::uint32_t rank, std::uint64_t place) const;

 private:
  struct Buffer {
    unsigned char* view;  // the parts of all ranks
    std::size_t bytes;    // size of one rank's part, in whole pages
    std::uint64_t offset;
  };
  void release(const Buffer& buffer) const;

  const Membership& membership_;
  std::uint64_t next_ = 0;  // in the heap
  mutable std::mutex mutex_;
  std::map<const unsigned char*, Buffer> buffers_;  // by the address of this rank's memory
};

}  // namespace ddp::collectives
