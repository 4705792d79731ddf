// SPDX-License-Identifier: BSD-3-Clause
// How collectives in shared memory divide data: into chunks, which take the same steps one after the other, and a chunk
// into slices, which ranks work on at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/host/segment.hpp"

namespace ddp::collectives {

// Larger chunks leave the second cache, smaller ones wait more often.
inline constexpr std::size_t kChunkBytes = 512 << 10;

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

inline void copy(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Elements of a chunk. Slices begin at whole lines.
struct Slice {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};
// Returns the slice of this number out of `slices`. The first one is the largest.
Slice slice_of(std::size_t count, std::size_t element, std::uint32_t number, std::uint32_t slices);

}  // namespace ddp::collectives
