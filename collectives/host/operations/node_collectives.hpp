// SPDX-License-Identifier: BSD-3-Clause
// The collectives of a group whose ranks are on several nodes. Each has phases in shared memory (steps.hpp), which all
// ranks of a node go through, and frames between nodes.
//
// Rank i of each node carries lane i of the data between nodes, for as many ranks as the smallest node has. Large
// reductions go along the nodes as a chain: each node adds its ranks to the sum of the nodes before, one after the
// other, so the order of summation is the order of ranks. The result comes back along the chain:
//
//     node 0   x0+x1 ─────▶ node 1   +x2+x3 ─────▶ node 2   +x4+x5 = result      chunk by chunk, so that
//     result   ◀─────────── result   ◀──────────── result                        both directions are busy
//
// What is small goes through the first rank of each node, and takes as many rounds as the logarithm of the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/host/nodes/layout.hpp"
#include "collectives/host/nodes/network.hpp"
#include "collectives/host/nodes/transfers.hpp"
#include "collectives/host/operations/shared_collectives.hpp"

namespace ddp::collectives {

class NodeCollectives final : public Collectives {
 public:
  NodeCollectives(const Membership& membership, Network& network);

  Steps& steps() override { return steps_; }
  void set_meanwhile(std::function<bool()> meanwhile) override;
  void start(std::uint32_t what, std::int64_t timeout_ms, int most_looks) override;
  void abandon() override { transfers_.abandon(); }
  void reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
              std::optional<std::uint32_t> root) override;
  void reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count, std::size_t element,
                      const Reduction& reduction) override;
  void broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) override;
  void all_gather(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes) override;
  void gather(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) override;
  void scatter(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) override;
  void all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes, unsigned char* output,
                  const std::vector<std::size_t>& output_bytes) override;
  void barrier() override;

 private:
  // Elements first..end of the data, or of a chunk.
  struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t count() const { return end > begin ? end - begin : 0; }
    Range within(const Range& other) const;
  };
  // A reduction along the nodes: the result replaces the data where it is wanted.
  struct Chain {
    unsigned char* data = nullptr;
    std::size_t count = 0, element = 0;
    const Reduction* reduction = nullptr;
    std::vector<Range> wanted;  // by node
    Range kept;                 // what this rank wants
    std::size_t each = 0;       // elements of a chunk
  };

  void reduce_small(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction);
  void reduce_along_nodes(Chain chain);
  void contribute(const Chain& chain, const Range& chunk);
  void add_own_node(const Chain& chain, const Range& slice);
  void deliver(const Chain& chain, const Range& chunk);
  Range returned(const Chain& chain, std::uint32_t node) const;
  Range slice_of(const Range& chunk, std::uint32_t lane) const;

  // Exchanges what the first ranks hold: `begin[k]` is where node k's part of `all` begins.
  void exchange(unsigned char* all, const std::vector<std::size_t>& begin);
  void all_gather_small(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes,
                        std::size_t total);
  void gather_on_node(unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece);
  void gather_from_node(unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece,
                        std::uint32_t distance, const Transfers::Frame& last);
  Transfers::Frame expect(unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece,
                          std::uint32_t distance);
  void forward(const unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece,
               std::uint32_t node);
  void pass_chunk(unsigned char* data, std::size_t bytes, std::uint32_t root, bool is_small);

  bool carries() const { return layout_.index < layout_.lanes; }
  bool is_alone() const { return layout_.own_ranks().size() == 1; }
  std::uint32_t ranks_here() const { return static_cast<std::uint32_t>(layout_.own_ranks().size()); }
  // The rank that carries this rank's lane on another node.
  std::uint32_t opposite(std::uint32_t node) const { return layout_.nodes[node][layout_.index]; }
  std::uint32_t node_at(std::uint32_t distance) const { return (layout_.node + distance) % layout_.node_count(); }

  const Layout& layout_;
  SharedCollectives shared_;
  Steps& steps_;
  Transfers transfers_;
  const std::size_t most_bytes_;  // a step may have, on every node
  std::vector<const unsigned char*> sources_;
  std::vector<unsigned char> scratch_, received_;
  std::vector<std::size_t> offsets_;
};

}  // namespace ddp::collectives
