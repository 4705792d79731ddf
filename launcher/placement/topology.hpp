// SPDX-License-Identifier: BSD-3-Clause
// The CPUs that this process may use, and what they share: a core, a cache, a socket, a NUMA node. Read once from files
// in sysfs; plain values after that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/machine/cpus.hpp"

namespace ddp::launcher {

using rendezvous::allowed_cpus;
using rendezvous::CpuSet;

// Writes {0, 1, 2, 4} as "0-2,4".
std::string to_cpu_list(const CpuSet& cpus);

// Returns the mask for sched_setaffinity, with one bit per CPU.
std::vector<unsigned long> to_mask(const CpuSet& cpus);

struct Cpu {
  int number = 0;
  int core = 0;          // the lowest CPU of its physical core
  int core_complex = 0;  // the lowest CPU of those that share its last cache
  int socket = 0;        // physical_package_id
  int numa_node = 0;
};

struct Topology {
  std::vector<Cpu> cpus;  // only those that are allowed, by number

  CpuSet of_node(int numa_node) const;
  std::vector<int> nodes() const;  // those with CPUs here, ascending
};

// Reads the topology of the allowed CPUs from `sysfs`, which is "/sys" or a copy of it. A kernel without NUMA nodes
// counts as one node, number 0.
Topology read_topology(const std::string& sysfs, const CpuSet& allowed);

// Returns the NUMA node of a PCI device ("0000:dc:00.0"); 0 where the machine has only one and does not report it;
// nullopt if there is no such device.
std::optional<int> numa_node_of_device(const std::string& sysfs, const std::string& pci_address);

}  // namespace ddp::launcher
