// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/topology.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <map>

namespace ddp::launcher {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

std::optional<std::string> read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? std::optional(line) : std::nullopt;
}

std::optional<int> read_number(const fs::path& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

int lowest_of(const std::optional<std::string>& list, int otherwise) {
  const CpuSet cpus = rendezvous::parse_cpu_list(list.value_or(""));
  return cpus.empty() ? otherwise : *cpus.begin();
}

// Returns the CPUs that share the cache of the highest level, other than instruction caches; a virtual machine may show
// no cache.
std::optional<std::string> sharers_of_last_cache(const fs::path& cpu) {
  int highest = -1;
  std::optional<std::string> sharers;
  for (const fs::path& cache : entries_of(cpu / "cache")) {
    const auto level = read_number(cache / "level");
    if (!level || *level <= highest || read_line(cache / "type") == "Instruction") continue;
    highest = *level;
    sharers = read_line(cache / "shared_cpu_list");
  }
  return sharers;
}

}  // namespace

std::string to_cpu_list(const CpuSet& cpus) {
  std::string text;
  for (auto first = cpus.begin(); first != cpus.end();) {
    auto last = first;
    auto next = std::next(first);
    while (next != cpus.end() && *next == *last + 1) last = next++;
    text += (text.empty() ? "" : ",") + std::to_string(*first);
    if (last != first) text += "-" + std::to_string(*last);
    first = next;
  }
  return text;
}

std::vector<unsigned long> to_mask(const CpuSet& cpus) {
  std::vector<unsigned long> mask;
  for (const int number : cpus) {
    const auto cpu = static_cast<std::size_t>(number);
    if (mask.size() <= cpu / kBitsPerWord) mask.resize(cpu / kBitsPerWord + 1);
    mask[cpu / kBitsPerWord] |= 1UL << (cpu % kBitsPerWord);
  }
  return mask;
}

CpuSet Topology::of_node(int numa_node) const {
  CpuSet numbers;
  for (const Cpu& cpu : cpus) {
    if (cpu.numa_node == numa_node) numbers.insert(cpu.number);
  }
  return numbers;
}

std::vector<int> Topology::nodes() const {
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) nodes.insert(cpu.numa_node);
  return {nodes.begin(), nodes.end()};
}

Topology read_topology(const std::string& sysfs, const CpuSet& allowed) {
  const std::map<int, int> nodes = rendezvous::numa_node_of_cpus(sysfs);
  Topology topology;
  for (const int number : allowed) {
    const fs::path folder = fs::path(sysfs) / "devices/system/cpu" / ("cpu" + std::to_string(number));
    const auto node = nodes.find(number);
    Cpu cpu;
    cpu.number = number;
    cpu.numa_node = node == nodes.end() ? 0 : node->second;
    cpu.socket = read_number(folder / "topology/physical_package_id").value_or(0);
    cpu.core = lowest_of(read_line(folder / "topology/thread_siblings_list"), number);
    cpu.core_complex = lowest_of(sharers_of_last_cache(folder), -1 - cpu.numa_node);  // unknown: one for the node
    topology.cpus.push_back(cpu);
  }
  return topology;
}

std::optional<int> numa_node_of_device(const std::string& sysfs, const std::string& pci_address) {
  const auto node = read_number(fs::path(sysfs) / "bus/pci/devices" / pci_address / "numa_node");
  return node ? std::optional(std::max(*node, 0)) : std::nullopt;
}

}  // namespace ddp::launcher
