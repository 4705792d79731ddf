// SPDX-License-Identifier: BSD-3-Clause
// A folder with the few files of a machine's sysfs that ddprun reads.
#pragma once

#include <string>

#include "tests/support/process.hpp"

namespace ddp::testing {

class FakeSysfs {
 public:
  const std::string& path() const { return folder_.path(); }

  void node(int node, const std::string& cpus) const {
    put("devices/system/node/node" + std::to_string(node) + "/cpulist", cpus);
  }
  // `siblings` are the CPUs of its core; `sharers` those of its last cache, empty for a machine that shows no cache.
  void cpu(int cpu, int socket, const std::string& siblings, const std::string& sharers) const {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(cpu);
    put(folder + "/topology/physical_package_id", std::to_string(socket));
    put(folder + "/topology/thread_siblings_list", siblings);
    if (sharers.empty()) return;
    cache(folder + "/cache/index0", 1, "Data", siblings);
    cache(folder + "/cache/index1", 4, "Instruction", "0-1023");  // a level that no real machine has
    cache(folder + "/cache/index3", 3, "Unified", sharers);
    cache(folder + "/cache/index2", 2, "Unified", siblings);
  }
  void device(const std::string& pci_address, int numa_node) const {
    put("bus/pci/devices/" + pci_address + "/numa_node", std::to_string(numa_node));
  }

 private:
  void put(const std::string& name, const std::string& text) const { write_file(folder_ / name, text + "\n"); }
  void cache(const std::string& folder, int level, const std::string& type, const std::string& sharers) const {
    put(folder + "/level", std::to_string(level));
    put(folder + "/type", type);
    put(folder + "/shared_cpu_list", sharers);
  }

  TemporaryFolder folder_;
};

}  // namespace ddp::testing
