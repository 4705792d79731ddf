// SPDX-License-Identifier: BSD-3-Clause
// Which CPUs this process may use, and what they share: a core, a cache, a socket, a NUMA node. Read from sysfs, where
// the kernel says it in files of a word each; plain values after that.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

using CpuSet = std::set<int>;  // the kernel's numbers of logical CPUs

// "0-2,4" is {0, 1, 2, 4}, and back. What is no number ends the list.
CpuSet parse_cpu_list(const std::string& text);
std::string to_cpu_list(const CpuSet& cpus);

// What sched_getaffinity says of this thread.
CpuSet allowed_cpus();

// For sched_setaffinity: one bit a CPU.
std::vector<unsigned long> to_mask(const CpuSet& cpus);

struct Cpu {
  int number = 0;
  int core = 0;          // the lowest CPU of its physical core
  int core_complex = 0;  // the lowest CPU of those that share its last cache
  int socket = 0;        // physical_package_id
  int numa_node = 0;
};

struct Topology {
  std::vector<Cpu> cpus;  // allowed ones only, by number

  CpuSet of_node(int numa_node) const;
  std::vector<int> nodes() const;  // that have CPUs here, ascending
};

// sysfs: "/sys", or a copy of it. A kernel that knows no NUMA nodes has one, number 0.
Topology read_topology(const std::string& sysfs, const CpuSet& allowed);

// Of a PCI device ("0000:dc:00.0"); 0 where the machine has one only and does not say; nullopt: no such device.
std::optional<int> numa_node_of_device(const std::string& sysfs, const std::string& pci_address);

}  // namespace ddp::launcher
