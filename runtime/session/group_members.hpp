// SPDX-License-Identifier: BSD-3-Clause
// Which ranks of the job are in a group, and in which order: plain functions. A member's place in the list is its rank
// in the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::runtime {

using Members = std::vector<int>;  // ranks of the job

// What new_group was given, in ascending order, as torch.distributed sorts it. Throws rendezvous::Error naming the rank
// that is given twice or is none of the job's.
Members sorted_members(const std::int32_t* ranks, std::size_t count, int world_size);
Members all_members(int world_size);

// Split: what every rank of the parent said, in the order of its ranks there.
struct SplitChoice {
  std::int64_t color = 0;
  std::int64_t key = 0;
};
// Who chose `color`, by key, then by rank in the parent.
Members members_of_color(const std::vector<SplitChoice>& choices, std::int64_t color, const Members& parent);

int rank_in(const Members& members, int rank);  // -1: not a member
// "rank 5", "ranks 0-3, 7"; of a long list the beginning and how many there are.
std::string describe(const Members& members);
// The whole list however long it is, in few characters: "0-3,7".
std::string to_string(const Members& members);

}  // namespace ddp::runtime
