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

// ---- The lists that Slurm writes into the environment of what srun starts, and into its files ----

// Returns the first node of SLURM_STEP_NODELIST: "rack1-node07" for "rack1-node[07-09,12],login".
std::string first_host(const std::string& nodes);

// Returns all names of such a list; nothing if it is none, or has more than a million.
std::optional<std::vector<std::string>> expand_hosts(const std::string& list);

// Returns the count of one node in SLURM_STEP_TASKS_PER_NODE, where "16(x2),3" means 16, 16, 3; `node` is its place in
// SLURM_STEP_NODELIST, from 0. Nothing if the list does not have it.
std::optional<int> count_on_node(const std::string& counts, int node);

}  // namespace ddp::rendezvous
