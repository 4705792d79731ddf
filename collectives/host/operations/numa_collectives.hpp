// SPDX-License-Identifier: BSD-3-Clause
// Large collectives of ranks that share memory but run on several NUMA nodes. Memory of another NUMA node is slower,
// and all ranks share the way there. So data crosses once into each NUMA node, and that node's ranks read it there: a
// rank's ring is on the NUMA node that the rank runs on.
//
// Rank i of each NUMA node carries lane i of what crosses, for as many ranks as the smallest NUMA node has. In a
// reduction each one adds its NUMA node's ranks to the sum of those before, so the order of summation is the order of
// ranks, as in SharedCollectives:
//
//     NUMA node 0   x0+x1 ─────▶ NUMA node 1   +x2+x3 ─────▶ NUMA node 2   +x4+x5 = result
//                   result ◀────────────────── result ◀──────────────────── (each fetches it from the last)
//
// SharedCollectives has the sizes that are too small for this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/host/nodes/layout.hpp"
#include "collectives/host/operations/shared_collectives.hpp"
#include "collectives/host/operations/slices.hpp"

namespace ddp::collectives {

class NumaCollectives final : public SharedCollectives {
 public:
  // The nodes of `layout` are NUMA nodes, and the ranks of each follow each other.
  NumaCollectives(const Membership& membership, Layout layout)
      : SharedCollectives(membership), layout_(std::move(layout)) {}

  void reduce_chunks(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                     std::optional<std::uint32_t> root) override;
  void broadcast_chunks(unsigned char* data, std::size_t bytes, std::uint32_t root) override;
  void all_gather_chunks(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes,
                         const std::vector<std::size_t>& begins) override;

 private:
  // A lane's slice is passed on in pieces, so that a NUMA node adds to one while the node before sums the next.
  static constexpr std::uint32_t kPieces = 4;
  using PieceSteps = std::array<Step, kPieces>;

  // A chunk of a reduction, and its steps: contributions, sums, and what each NUMA node fetches of the result.
  struct Chunk {
    unsigned char* data;
    std::size_t count, element;
    Step contributions;
    PieceSteps sums, results;
  };

  std::size_t chunk_bytes(const Reduction& reduction, std::size_t element) const;
  Chunk begin_chunk(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                    bool has_root);
  void contribute(const Chunk& chunk);
  void add_own_node(const Chunk& chunk, const Reduction& reduction);
  void fetch_results(const Chunk& chunk);
  void take_results(const Chunk& chunk, std::uint32_t node, const PieceSteps& steps);
  Slice piece_of(const Chunk& chunk, std::uint32_t lane, std::uint32_t piece) const;

  bool carries() const { return layout_.index < layout_.lanes; }
  std::uint32_t last_node() const { return layout_.node_count() - 1; }

  const Layout layout_;
  std::vector<const unsigned char*> node_sources_;
};

}  // namespace ddp::collectives
