// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/numa_binding.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "launcher/placement/gpus.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

[[noreturn]] void cannot_bind(const std::string& why) {
  throw Error(ErrorCode::InvalidArgument, "--numa-binding: " + why);
}

CpuSet cpus_of_socket_of(const Topology& topology, int numa_node) {
  // A node belongs to the socket of its first CPU; a socket has all CPUs of its nodes.
  const auto socket_of = [&](int node) {
    return std::find_if(topology.cpus.begin(), topology.cpus.end(), [&](const Cpu& c) { return c.numa_node == node; })
        ->socket;
  };
  CpuSet cpus;
  for (const int node : topology.nodes()) {
    if (socket_of(node) == socket_of(numa_node)) cpus.merge(topology.of_node(node));
  }
  return cpus;
}

// Returns the CPUs of a NUMA node in groups whose CPUs have the same value of `member`.
std::vector<CpuSet> group(const Topology& topology, int numa_node, int Cpu::*member) {
  std::map<int, CpuSet> groups;
  for (const Cpu& cpu : topology.cpus) {
    if (cpu.numa_node == numa_node) groups[cpu.*member].insert(cpu.number);
  }
  std::vector<CpuSet> sets;
  for (auto& [key, cpus] : groups) sets.push_back(std::move(cpus));
  return sets;
}

// Returns the cores of one place when a node's cores are divided evenly; the first places get one more each if there is
// a remainder.
CpuSet exclusive_part(const Topology& topology, int numa_node, std::size_t index, std::size_t places) {
  std::vector<CpuSet> cores = group(topology, numa_node, &Cpu::core);
  if (cores.size() < places) {
    cannot_bind("exclusive needs a core for each worker, and NUMA node " + std::to_string(numa_node) + " has " +
                std::to_string(cores.size()) + " for " + std::to_string(places) +
                "; start fewer, or bind them by node");
  }
  const std::size_t each = cores.size() / places;
  const std::size_t left_over = cores.size() % places;
  const std::size_t first = index * each + std::min(index, left_over);
  const std::size_t last = first + each + (index < left_over ? 1 : 0);
  CpuSet part;
  for (std::size_t core = first; core < last; ++core) part.merge(cores[core]);
  return part;
}

CpuSet core_complex(const Topology& topology, int numa_node, std::size_t index) {
  std::vector<CpuSet> complexes = group(topology, numa_node, &Cpu::core_complex);
  // The largest come first, since some may have lost CPUs to a cpuset.
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return complexes[index % complexes.size()];
}

// Returns a place for each GPU and each worker: as many as the larger of their numbers.
std::vector<WorkerBinding> find_places(const Topology& topology, std::size_t workers,
                                       const std::optional<std::string>& visible_gpus, const std::string& sysfs) {
  const std::vector<std::string> gpus = split_gpus(visible_gpus.value_or(""));
  const std::vector<int> nodes = topology.nodes();
  if (nodes.empty()) cannot_bind("this process may use no CPU");
  std::vector<WorkerBinding> places(std::max(workers, gpus.size()));
  if (gpus.empty()) {
    for (std::size_t i = 0; i < places.size(); ++i) places[i].numa_node = nodes[i * nodes.size() / places.size()];
    return places;
  }
  const std::vector<std::string> addresses = pci_addresses(gpus);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string& address = addresses[i % gpus.size()];
    const auto node = numa_node_of_device(sysfs, address);
    places[i].gpu = gpus[i % gpus.size()];
    if (!node) cannot_bind("GPU " + places[i].gpu + " is PCI device " + address + ", which is not in " + sysfs);
    places[i].numa_node = *node;
  }
  return places;
}

}  // namespace

std::optional<NumaBinding> numa_binding_from(const std::string& text) {
  static const std::map<std::string, NumaBinding> names = {{"", NumaBinding::None},
                                                           {"node", NumaBinding::Node},
                                                           {"socket", NumaBinding::Socket},
                                                           {"exclusive", NumaBinding::Exclusive},
                                                           {"core-complex", NumaBinding::CoreComplex}};
  const auto found = names.find(text);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

std::vector<CpuSet> share_cpus(const Topology& topology, NumaBinding binding, const std::vector<int>& node_of_place,
                               std::size_t workers) {
  std::vector<CpuSet> cpus;
  for (std::size_t i = 0; i < workers; ++i) {
    const int node = node_of_place[i];
    const auto self = node_of_place.begin() + static_cast<std::ptrdiff_t>(i);
    const auto index = static_cast<std::size_t>(std::count(node_of_place.begin(), self, node));
    switch (binding) {
      case NumaBinding::None: {
        cpus.emplace_back();
        for (const Cpu& cpu : topology.cpus) cpus.back().insert(cpu.number);
        break;
      }
      case NumaBinding::Node:
        cpus.push_back(topology.of_node(node));
        break;
      case NumaBinding::Socket:
        cpus.push_back(cpus_of_socket_of(topology, node));
        break;
      case NumaBinding::Exclusive: {
        const auto places = std::count(node_of_place.begin(), node_of_place.end(), node);
        cpus.push_back(exclusive_part(topology, node, index, static_cast<std::size_t>(places)));
        break;
      }
      case NumaBinding::CoreComplex:
        cpus.push_back(core_complex(topology, node, index));
        break;
    }
  }
  return cpus;
}

std::vector<WorkerBinding> bind_workers(NumaBinding binding, int workers,
                                        const std::optional<std::string>& visible_gpus, const std::string& sysfs) {
  const Topology topology = read_topology(sysfs, allowed_cpus());
  std::vector<WorkerBinding> places = find_places(topology, static_cast<std::size_t>(workers), visible_gpus, sysfs);
  std::vector<int> nodes;
  for (const WorkerBinding& place : places) nodes.push_back(place.numa_node);
  places.resize(static_cast<std::size_t>(workers));
  for (const WorkerBinding& place : places) {
    if (!topology.of_node(place.numa_node).empty()) continue;
    cannot_bind("GPU " + place.gpu + " is on NUMA node " + std::to_string(place.numa_node) +
                ", of whose CPUs this process may use none; let it use some (it may use " +
                to_cpu_list(allowed_cpus()) + "), or leave the option out");
  }
  std::vector<CpuSet> cpus = share_cpus(topology, binding, nodes, places.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i].cpus = std::move(cpus[i]);
  return places;
}

std::string bindings_table(const std::vector<WorkerBinding>& bindings) {
  using Row = std::array<std::string, 4>;
  std::vector<Row> rows = {{"LOCAL_RANK", "GPU", "NUMA NODE", "CPUS"}};
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    const WorkerBinding& b = bindings[i];
    rows.push_back({std::to_string(i), b.gpu.empty() ? "-" : b.gpu, std::to_string(b.numa_node), to_cpu_list(b.cpus)});
  }
  Row::size_type widths[3] = {};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < 3; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string table;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < 3; ++c) table += row[c] + std::string(widths[c] + 2 - row[c].size(), ' ');
    table += row[3] + "\n";
  }
  return table;
}

}  // namespace ddp::launcher
