// SPDX-License-Identifier: BSD-3-Clause
// Kills ranks at any instruction, and checks what the others say.
#pragma once

#include <vector>

namespace ddp::collectives::test {

// Forms groups, each on one of these sets of simulated nodes (the node of each rank; a single node is this machine as
// it is), has their ranks work, and kills one of them after a random time: $DDPRUN_HOST_KILLS times, or 30. Checks that
// all others name that rank, and that this process has no more descriptors than before.
void kill_ranks(const std::vector<std::vector<int>>& worlds);

}  // namespace ddp::collectives::test
