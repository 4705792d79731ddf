// SPDX-License-Identifier: BSD-3-Clause
// The CPUs that a thread may use, and the NUMA nodes that they belong to.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

namespace ddp::rendezvous {

using CpuSet = std::set<int>;  // the kernel's numbers of logical CPUs

// Reads "0-2,4" as {0, 1, 2, 4}. Stops at what is not a number.
CpuSet parse_cpu_list(const std::string& text);

// Returns the CPUs that sched_getaffinity reports for this thread.
CpuSet allowed_cpus();

// Returns the NUMA node of each CPU as `sysfs` shows it, which is "/sys" or a copy of it. A CPU that is offline is not
// there; without NUMA in the kernel none is.
std::map<int, int> numa_node_of_cpus(const std::string& sysfs);

// Returns the NUMA node that has all of these CPUs; nothing if they are on several, or if one of them is on none.
std::optional<int> numa_node_of(const CpuSet& cpus, const std::map<int, int>& node_of_cpus);

}  // namespace ddp::rendezvous
