// SPDX-License-Identifier: BSD-3-Clause
// Follows who waits for whom, by the calls of libddp that ranks are in: a rank in a collective waits for each member of
// the group that has not called it, one in a message for its peer. The rank at the end is what all others wait for,
// though it may be in a distributed call, too:
//
//     rank 0 ──all_reduce #7 of "tp"──▶ rank 1 ──recv of "pp"──▶ rank 3, which loads data
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

struct AwaitedRanks {
  std::vector<int> ranks;
  bool is_cycle = false;  // they wait for each other
  std::string words;      // "rank 1 has not called all_reduce #7 of group tp, in which rank 0 waits"
};

// Returns nothing if no rank is known to wait, or if those at the end wait for ranks that are not among these workers.
std::optional<AwaitedRanks> find_awaited(const std::vector<WorkerStacks>& workers);

}  // namespace ddp::launcher
