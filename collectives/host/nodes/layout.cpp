// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/layout.hpp"

#include <algorithm>

namespace ddp::collectives {

Layout::Layout(const std::vector<std::uint32_t>& first_of_node, std::uint32_t own_rank) : rank(own_rank) {
  const auto ranks = static_cast<std::uint32_t>(first_of_node.size());
  node_of.resize(ranks);
  index_of.resize(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (first_of_node[r] == r) {
      node_of[r] = node_count();
      nodes.emplace_back();
    } else {
      node_of[r] = node_of[first_of_node[r]];
    }
    std::vector<std::uint32_t>& members = nodes[node_of[r]];
    index_of[r] = static_cast<std::uint32_t>(members.size());
    members.push_back(r);
  }
  lanes = ranks;
  for (const std::vector<std::uint32_t>& members : nodes) {
    places.push_back(static_cast<std::uint32_t>(in_order.size()));
    in_order.insert(in_order.end(), members.begin(), members.end());
    lanes = std::min(lanes, static_cast<std::uint32_t>(members.size()));
  }
  places.push_back(ranks);
  is_contiguous = std::is_sorted(in_order.begin(), in_order.end());
  node = node_of[rank];
  index = index_of[rank];
}

std::optional<Layout> numa_layout(const std::vector<std::optional<int>>& numa_node_of, std::uint32_t own_rank) {
  std::vector<std::uint32_t> first_of_node;
  for (const std::optional<int>& node : numa_node_of) {
    if (!node) return std::nullopt;
    const auto first = std::find(numa_node_of.begin(), numa_node_of.end(), node);
    first_of_node.push_back(static_cast<std::uint32_t>(first - numa_node_of.begin()));
  }
  Layout layout(first_of_node, own_rank);
  if (layout.node_count() < 2 || layout.lanes < 2 || !layout.is_contiguous) return std::nullopt;
  return layout;
}

}  // namespace ddp::collectives
