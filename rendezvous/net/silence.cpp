// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/silence.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <unordered_map>

namespace ddp::rendezvous {
namespace {

constexpr std::size_t kPart = 16;

struct Candidate {
  Standing standing;
  std::int64_t excess;  // silent ones of its share that are as young as this one or younger, less those that spoke
  std::uint64_t id;

  // Closed before another one?
  bool operator<(const Candidate& other) const {
    return std::tuple(standing, -excess, id) < std::tuple(other.standing, -other.excess, other.id);
  }
};

}  // namespace

std::string share_of(in6_addr address) {
  if (!IN6_IS_ADDR_V4MAPPED(&address)) std::memset(&address.s6_addr[8], 0, 8);
  return {reinterpret_cast<const char*>(&address), sizeof address};
}

std::vector<std::uint64_t> choose_silent(std::vector<OpenConnection> connections) {
  std::unordered_map<std::string, std::int64_t> excess;
  for (const OpenConnection& connection : connections) {
    if (!connection.is_silent) --excess[connection.share];
  }
  std::sort(connections.begin(), connections.end(), [](const auto& a, const auto& b) { return a.id > b.id; });
  std::vector<Candidate> candidates;
  std::size_t silent = 0;
  for (const OpenConnection& connection : connections) {  // youngest first
    if (!connection.is_silent) continue;
    ++silent;
    const std::int64_t of_share = ++excess[connection.share];
    if (connection.standing != Standing::Stranger && of_share <= 0) continue;
    if (connection.standing >= Standing::Member && connection.is_new) continue;
    candidates.push_back({connection.standing, of_share, connection.id});
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.resize(std::min(candidates.size(), std::max<std::size_t>(1, silent / kPart)));
  std::vector<std::uint64_t> chosen;
  chosen.reserve(candidates.size());
  for (const Candidate& candidate : candidates) chosen.push_back(candidate.id);
  return chosen;
}

}  // namespace ddp::rendezvous
