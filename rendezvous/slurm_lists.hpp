// SPDX-License-Identifier: BSD-3-Clause
// Parsers of the lists that Slurm writes: into the environment of the processes that srun starts, and into its files.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::rendezvous {

// Returns the first node of SLURM_STEP_NODELIST: "rack1-node07" for "rack1-node[07-09,12],login".
std::string first_host(const std::string& nodes);

// Returns all names of such a list; nothing if it is none, or has more than a million.
std::optional<std::vector<std::string>> expand_hosts(const std::string& list);

// Returns the count of one node in SLURM_STEP_TASKS_PER_NODE, where "16(x2),3" means 16, 16, 3; `node` is its place in
// SLURM_STEP_NODELIST, from 0. Nothing if the list does not have it.
std::optional<int> count_on_node(const std::string& counts, int node);

}  // namespace ddp::rendezvous
