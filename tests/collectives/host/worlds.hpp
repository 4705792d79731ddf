// SPDX-License-Identifier: BSD-3-Clause
// What is true of a group in any world of nodes or NUMA nodes: random programs compute what the model does, and sums
// have the same bits. DDPRUN_COLLECTIVE_PROGRAMS is how many programs (default 150), DDPRUN_COLLECTIVE_SEED the first
// seed (default: drawn).
#pragma once

#include <span>
#include <vector>

#include "tests/collectives/host/job.hpp"

namespace ddp::collectives::test {

// Checks random programs with each rank in a thread. In each node of a world, the ranks must follow each other.
void run_in_threads(std::span<const World> worlds);

// Checks random programs with each rank in a process, with $DDP_RING_BYTES for nodes with even and with odd numbers.
struct Rings {
  const char* of_even_nodes;
  const char* of_odd_nodes;
};
void run_in_processes(std::span<const World> worlds, const std::vector<Rings>& rings);

// Checks that all_reduce gives the same bits in all worlds of 4 ranks, of any size and type.
void check_equal_bits(const std::vector<World>& worlds);

}  // namespace ddp::collectives::test
