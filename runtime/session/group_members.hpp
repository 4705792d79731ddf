// SPDX-License-Identifier: BSD-3-Clause
// The members of a group: a list of ranks of the job, and functions on it. A member's position in the list is its rank
// in the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::runtime {

using Members = std::vector<int>;  // ranks of the job

// Returns the ranks given to new_group in ascending order, as torch.distributed sorts them. Throws rendezvous::Error
// naming a rank that is given twice or is not in the job.
Members sorted_members(const std::int32_t* ranks, std::size_t count, int world_size);
Members all_members(int world_size);

// What a rank of the parent passed to split.
struct SplitChoice {
  std::int64_t color = 0;
  std::int64_t key = 0;
};
// Returns the members that chose `color`, ordered by key, then by rank in the parent. `choices` is indexed by rank in
// the parent.
Members members_of_color(const std::vector<SplitChoice>& choices, std::int64_t color, const Members& parent);

// Returns the rank in the group of a rank of the job, or -1 if it is not a member.
int rank_in(const Members& members, int rank);
// Returns "rank 5" or "ranks 0-3, 7"; for a long list its beginning and the number of members.
std::string describe(const Members& members);
// Returns the whole list, however long, in a compact form: "0-3,7".
std::string to_string(const Members& members);

}  // namespace ddp::runtime
