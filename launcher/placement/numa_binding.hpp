// SPDX-License-Identifier: BSD-3-Clause
// Chooses the CPUs near its GPU that each worker of this node may run on (--numa-binding). The rules are PyTorch's
// (torch/numa/binding.py, AffinityMode). Memory is not bound: the kernel allocates it near the CPU that touches it
// first.
//
// Without a GPU, where PyTorch gives up, workers are spread over the NUMA nodes in blocks: the first half of them on
// the first of two nodes, and so on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/placement/topology.hpp"

namespace ddp::launcher {

enum class NumaBinding {
  None,
  Node,         // all CPUs of the GPU's NUMA node
  Socket,       // all CPUs of all NUMA nodes of its socket
  Exclusive,    // cores of the node that no other worker has
  CoreComplex,  // cores of the node that share a cache; workers get the groups in turn
};

// Parses "node", "socket", "exclusive", "core-complex", or empty for None; nullopt for anything else.
std::optional<NumaBinding> numa_binding_from(const std::string& text);

struct WorkerBinding {
  std::string gpu;  // its entry of CUDA_VISIBLE_DEVICES; empty: none
  int numa_node = 0;
  CpuSet cpus;
};

// Returns a binding for each worker. `visible_gpus` is the result of launcher::visible_gpus; worker i uses GPU i, and
// more workers than GPUs share them in turn. Throws rendezvous::Error if a GPU's place cannot be found, if its node has
// no CPU that may be used, or if there are too few cores for Exclusive.
std::vector<WorkerBinding> bind_workers(NumaBinding binding, int workers,
                                        const std::optional<std::string>& visible_gpus,
                                        const std::string& sysfs = "/sys");

// Applies the rule alone: returns CPUs for the first `workers` places on NUMA nodes. The other places, GPUs that no
// worker uses, keep their share.
std::vector<CpuSet> share_cpus(const Topology& topology, NumaBinding binding, const std::vector<int>& node_of_place,
                               std::size_t workers);

// Returns the table of --print bindings.
std::string bindings_table(const std::vector<WorkerBinding>& bindings);

}  // namespace ddp::launcher
