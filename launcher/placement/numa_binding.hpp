// SPDX-License-Identifier: BSD-3-Clause
// --numa-binding: which CPUs each worker of this node may run on, those near its GPU. The rules are PyTorch's
// (torch/numa/binding.py, AffinityMode). Memory is not bound: the kernel takes it near the CPU that touches it first.
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
  CoreComplex,  // cores of the node that share a cache; one such group after another, while there are more
};

// "node", "socket", "exclusive", "core-complex"; empty: None. nullopt: something else.
std::optional<NumaBinding> numa_binding_from(const std::string& text);

struct WorkerBinding {
  std::string gpu;  // its entry of CUDA_VISIBLE_DEVICES; empty: none
  int numa_node = 0;
  CpuSet cpus;
};

// One for each worker. visible_gpus: as launcher::visible_gpus tells; worker i uses GPU i, and more workers than GPUs
// share them in turn. Throws rendezvous::Error: a GPU's place cannot be found, its node has no CPU that may be used,
// too few cores for Exclusive.
std::vector<WorkerBinding> bind_workers(NumaBinding binding, int workers,
                                        const std::optional<std::string>& visible_gpus,
                                        const std::string& sysfs = "/sys");

// The rule by itself: CPUs for the first `workers` of places on NUMA nodes, which leave room for the other ones.
std::vector<CpuSet> share_cpus(const Topology& topology, NumaBinding binding, const std::vector<int>& node_of_place,
                               std::size_t workers);

// The table of --print-bindings, for people.
std::string bindings_table(const std::vector<WorkerBinding>& bindings);

}  // namespace ddp::launcher
