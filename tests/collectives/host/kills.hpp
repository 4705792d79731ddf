// SPDX-License-Identifier: BSD-3-Clause
// Kills ranks at any instruction, and checks what the others say.
#pragma once

#include <vector>

#include "tests/collectives/host/job.hpp"

namespace ddp::collectives::test {

// Forms groups, each in one of these worlds, has their ranks work, and kills one of them, or two at once, after a
// random time: $DDPRUN_HOST_KILLS times, or 30. Checks that all others name that rank or one of the two, and that this
// process has no more descriptors than before. $DDPRUN_HOST_KILL_RANKS leaves only the worlds of as many ranks, and
// $DDPRUN_HOST_KILL_MIB gives each rank so much memory.
void kill_ranks(std::vector<World> worlds);

}  // namespace ddp::collectives::test
