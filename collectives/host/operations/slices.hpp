// SPDX-License-Identifier: BSD-3-Clause
// How the collectives of one node divide data: in chunks that go through shared memory one after the other, and each
// chunk in slices, of which every rank reduces one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives {

// Up to this many bytes from all ranks together, it takes less time that every rank reduces all of them than that the
// ranks wait for each other once more.
inline constexpr std::size_t kFlatBytes = 32 << 10;
// Larger chunks leave the second cache, smaller ones wait more often.
inline constexpr std::size_t kChunkBytes = 512 << 10;

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The elements of a chunk that one rank reduces. Slices begin at whole lines.
struct Slice {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};
Slice slice_of(std::size_t count, std::size_t element, std::uint32_t rank, std::uint32_t ranks);

// Returns the elements of a chunk, at most `most`, that divide `count` into as few chunks as possible of equal size: a
// last one of a few elements would take as long as the others wait.
std::size_t even_chunk(std::size_t count, std::size_t most);

// Sets `begins` to where each rank's part begins, if parts of these sizes follow each other.
void set_begins(std::vector<std::size_t>& begins, const std::vector<std::size_t>& bytes);

}  // namespace ddp::collectives
