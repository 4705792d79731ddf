// SPDX-License-Identifier: BSD-3-Clause
// Names a step of a Slurm job, and says at which ports its processes can meet: ddprun's nodes, and the ranks that srun
// starts without ddprun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::rendezvous {

struct SlurmStep {
  std::string id;                    // "slurm-4711.0", different for any two steps of one cluster
  std::vector<std::uint16_t> ports;  // derived from both numbers; each is to be tried where those before it are taken
};

// Returns the step with these values of SLURM_JOB_ID and SLURM_STEP_ID; nothing if one of them is no number.
std::optional<SlurmStep> slurm_step(const std::string& job, const std::string& step);

// Returns whether this value of SLURM_STEP_ID is the number of a batch script, of salloc's shell or the like: of one
// process, whatever SLURM_NTASKS says.
bool is_special_step(const std::string& step);

// Returns the value of a variable of this process; empty: it is not set.
using SlurmVariable = std::function<std::string(const char* name)>;

// Returns the node of a step whose SLURM_NODEID is 0; empty if Slurm does not say. Of a heterogeneous job it is the
// first one of the step's first component, wherever that is in SLURM_STEP_NODELIST, which is sorted by name.
std::string first_node_of_step(const SlurmVariable& variable);

// Returns how many tasks of the step are on this node; nothing if Slurm does not say.
std::optional<int> tasks_on_node(const SlurmVariable& variable);

}  // namespace ddp::rendezvous
