// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/group_members.hpp"

#include <algorithm>
#include <numeric>

#include "rendezvous/base/error.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::size_t kShownRanges = 8;

// Joins consecutive ascending ranks into ranges: "0-3", "7".
std::vector<std::string> ranges(const Members& members) {
  std::vector<std::string> found;
  for (std::size_t first = 0; first < members.size();) {
    std::size_t last = first;
    while (last + 1 < members.size() && members[last + 1] == members[last] + 1) ++last;
    if (last == first + 1) last = first;  // "0, 1" is as short as "0-1", and plainer
    found.push_back(std::to_string(members[first]) + (last > first ? "-" + std::to_string(members[last]) : ""));
    first = last + 1;
  }
  return found;
}

}  // namespace

Members sorted_members(const std::int32_t* ranks, std::size_t count, int world_size) {
  Members members(ranks, ranks + count);
  std::sort(members.begin(), members.end());
  for (const int rank : members) {
    if (rank >= 0 && rank < world_size) continue;
    throw Error(ErrorCode::InvalidArgument, "new_group: there is no rank " + std::to_string(rank) + " in a job of " +
                                                std::to_string(world_size) + " (ranks are those of the world)");
  }
  const auto twice = std::adjacent_find(members.begin(), members.end());
  if (twice == members.end()) return members;
  throw Error(ErrorCode::InvalidArgument, "new_group: rank " + std::to_string(*twice) + " is given twice");
}

Members all_members(int world_size) {
  Members members(static_cast<std::size_t>(world_size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

Members members_of_color(const std::vector<SplitChoice>& choices, std::int64_t color, const Members& parent) {
  std::vector<std::size_t> chosen;
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color == color) chosen.push_back(rank);
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::size_t a, std::size_t b) { return choices[a].key < choices[b].key; });
  Members members;
  for (const std::size_t rank : chosen) members.push_back(parent[rank]);
  return members;
}

int rank_in(const Members& members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found != members.end() ? static_cast<int>(found - members.begin()) : -1;
}

std::string describe(const Members& members) {
  const std::vector<std::string> all = ranges(members);
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(all.size(), kShownRanges); ++i) text += (i > 0 ? ", " : "") + all[i];
  if (all.size() > kShownRanges) text += ", ... (" + std::to_string(members.size()) + " in all)";
  return text;
}

std::string to_string(const Members& members) {
  std::string text;
  for (const std::string& range : ranges(members)) text += (text.empty() ? "" : ",") + range;
  return text;
}

}  // namespace ddp::runtime
