// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a group lie on nodes. A node here is a set of ranks that share memory; or, for a group that is on
// one node as a whole, a NUMA node.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::collectives {

// Nodes are in the order of their first ranks, and the ranks of a node in the order of ranks. The order of summation
// goes along the nodes, and within a node along its ranks: the order of ranks if each node's ranks follow each other.
struct Layout {
  // `first_of_node[r]` is the first rank of the node that rank r is on.
  Layout(const std::vector<std::uint32_t>& first_of_node, std::uint32_t own_rank);

  std::uint32_t size() const { return static_cast<std::uint32_t>(node_of.size()); }
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(nodes.size()); }
  const std::vector<std::uint32_t>& own_ranks() const { return nodes[node]; }
  bool is_local(std::uint32_t other) const { return node_of[other] == node; }
  // Returns whether this rank speaks for its node.
  bool is_first() const { return index == 0; }

  std::vector<std::vector<std::uint32_t>> nodes;  // ranks by node
  std::vector<std::uint32_t> node_of, index_of;   // by rank: its node, and its number among that node's ranks
  std::vector<std::uint32_t> in_order;            // ranks in the order of summation
  std::vector<std::uint32_t> places;              // by node, and one more: where its ranks begin in that order
  bool is_contiguous = true;                      // the order of summation is the order of ranks
  std::uint32_t rank, node = 0, index = 0;        // this rank
  std::uint32_t lanes = 0;  // ranks of the smallest node: as many ranks of each node carry data between nodes
};

// Returns how ranks lie on NUMA nodes, from each one's number. Returns nothing if a rank has none, if there is only
// one, if one has a single rank, or if the ranks of one do not follow each other in the group: the order of summation
// would not be the order of ranks.
std::optional<Layout> numa_layout(const std::vector<std::optional<int>>& numa_node_of, std::uint32_t own_rank);

}  // namespace ddp::collectives
