// SPDX-License-Identifier: BSD-3-Clause
// The lists that Slurm puts into the environment of what srun starts.
#pragma once

#include <optional>
#include <string>

namespace ddp::rendezvous {

// Of nodes (SLURM_STEP_NODELIST), the first: of "rack1-node[07-09,12],login" that is "rack1-node07".
std::string first_host(const std::string& nodes);

// Of counts, one a node (SLURM_STEP_TASKS_PER_NODE), that of a node of the step, 0 the first: "16(x2),3" is 16, 16, 3.
// Nothing if the list does not say.
std::optional<int> count_on_node(const std::string& counts, int node);

}  // namespace ddp::rendezvous
