// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_lists.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace ddp::rendezvous {

std::string first_host(const std::string& nodes) {
  std::string host;
  for (std::size_t i = 0; i < nodes.size() && nodes[i] != ','; ++i) {
    if (nodes[i] != '[') {
      host += nodes[i];
      continue;
    }
    const auto end = std::min(nodes.find(']', i), nodes.size() - 1);
    const auto number = nodes.find_first_of("-,]", i);
    host += nodes.substr(i + 1, number - i - 1);
    i = end;
  }
  return host;
}

std::optional<int> count_on_node(const std::string& counts, int node) {
  std::istringstream list(counts);
  for (std::string entry; std::getline(list, entry, ',');) {
    const char* end = entry.data() + entry.size();
    int count = 0, nodes = 1;
    const auto [after, error] = std::from_chars(entry.data(), end, count);
    if (error != std::errc()) return std::nullopt;
    if (after != end) {
      const std::size_t times = entry.find("(x");
      if (times == std::string::npos) return std::nullopt;
      if (std::from_chars(entry.data() + times + 2, end, nodes).ec != std::errc()) return std::nullopt;
    }
    if (node < nodes) return count;
    node -= nodes;
  }
  return std::nullopt;
}

}  // namespace ddp::rendezvous
