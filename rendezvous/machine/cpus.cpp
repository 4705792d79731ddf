// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/cpus.hpp"

#include <sched.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <vector>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::rendezvous {

CpuSet parse_cpu_list(const std::string& text) {
  CpuSet cpus;
  TextStream in(text);
  for (int first; in >> first;) {
    int last = first;
    if (in.peek() == '-') in.ignore() >> last;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    if (in.peek() == ',') in.ignore();
  }
  return cpus;
}

CpuSet allowed_cpus() {
  constexpr std::size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;
  // The kernel needs space for all CPUs that it could have, and answers EINVAL if there is too little.
  for (std::size_t words = 1024 / kBitsPerWord; words <= (1 << 20) / kBitsPerWord; words *= 2) {
    std::vector<unsigned long> mask(words);
    if (sched_getaffinity(0, words * sizeof mask[0], reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    CpuSet cpus;
    for (std::size_t cpu = 0; cpu < words * kBitsPerWord; ++cpu) {
      if ((mask[cpu / kBitsPerWord] >> (cpu % kBitsPerWord)) & 1) cpus.insert(static_cast<int>(cpu));
    }
    return cpus;
  }
  return {};
}

std::map<int, int> numa_node_of_cpus(const std::string& sysfs) {
  const std::string prefix = "node";
  std::map<int, int> nodes;
  std::error_code error;
  const auto folder = std::filesystem::path(sysfs) / "devices/system/node";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(prefix)) continue;
    const auto node = parse_number<int>(name.substr(prefix.size()));
    FileStream file(entry->path() / "cpulist");
    std::string list;
    if (!node || !std::getline(file, list)) continue;
    for (const int cpu : parse_cpu_list(list)) nodes[cpu] = *node;
  }
  return nodes;
}

std::optional<int> numa_node_of(const CpuSet& cpus, const std::map<int, int>& node_of_cpus) {
  std::optional<int> node;
  for (const int cpu : cpus) {
    const auto its = node_of_cpus.find(cpu);
    if (its == node_of_cpus.end() || (node && *node != its->second)) return std::nullopt;
    node = its->second;
  }
  return node;
}

}  // namespace ddp::rendezvous
