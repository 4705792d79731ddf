// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/numa_binding.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/base/error.hpp"
#include "tests/support/fake_sysfs.hpp"

using namespace ddp::launcher;

namespace {

// Two sockets of two NUMA nodes each; a node has three cores of two threads: node n has CPUs 3n..3n+2 and those + 12.
// The first two cores of a node share a cache, the third has one of its own.
Topology two_sockets() {
  Topology topology;
  for (int cpu = 0; cpu < 24; ++cpu) {
    const int core = cpu % 12;
    const int node = core / 3;
    const int complex = core % 3 == 1 ? core - 1 : core;
    topology.cpus.push_back(
        {.number = cpu, .core = core, .core_complex = complex, .socket = node / 2, .numa_node = node});
  }
  return topology;
}

std::vector<std::string> lists(const std::vector<CpuSet>& sets) {
  std::vector<std::string> texts;
  for (const CpuSet& set : sets) texts.push_back(to_cpu_list(set));
  return texts;
}

std::vector<std::string> shared(NumaBinding binding, const std::vector<int>& nodes) {
  return lists(share_cpus(two_sockets(), binding, nodes, nodes.size()));
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("numa binding: node gives each worker the CPUs of its GPU's node", "[launcher][unit]") {
  CHECK(shared(NumaBinding::Node, {1, 0, 1}) == Texts{"3-5,15-17", "0-2,12-14", "3-5,15-17"});
}

TEST_CASE("numa binding: socket gives the CPUs of all nodes of the socket", "[launcher][unit]") {
  CHECK(shared(NumaBinding::Socket, {1, 2}) == Texts{"0-5,12-17", "6-11,18-23"});
}

TEST_CASE("numa binding: exclusive gives out whole cores, and the first workers one more if there is a remainder",
          "[launcher][unit]") {
  CHECK(shared(NumaBinding::Exclusive, {0, 3, 0}) == Texts{"0-1,12-13", "9-11,21-23", "2,14"});
}

TEST_CASE("numa binding: exclusive without a core for each worker is refused with the numbers", "[launcher][unit]") {
  CHECK_THROWS_WITH(shared(NumaBinding::Exclusive, {0, 0, 0, 0}),
                    Catch::Contains("NUMA node 0 has 3 for 4") && Catch::Contains("start fewer"));
}

TEST_CASE("numa binding: GPUs that no worker uses keep their share, and too few cores for them are no error",
          "[launcher][unit]") {
  CHECK(lists(share_cpus(two_sockets(), NumaBinding::Exclusive, {0, 0, 1, 1, 1, 1}, 1)) == Texts{"0-1,12-13"});
}

TEST_CASE("numa binding: core-complex gives cores that share a cache, the larger first, in turn", "[launcher][unit]") {
  CHECK(shared(NumaBinding::CoreComplex, {2, 2, 2}) == Texts{"6-7,18-19", "8,20", "6-7,18-19"});
}

TEST_CASE("numa binding: a core that has lost a CPU to a cpuset is the smaller one", "[launcher][unit]") {
  Topology topology = two_sockets();
  std::erase_if(topology.cpus, [](const Cpu& cpu) { return cpu.number < 2 || cpu.number == 12 || cpu.number == 13; });
  CHECK(lists(share_cpus(topology, NumaBinding::CoreComplex, {0}, 1)) == Texts{"2,14"});
  topology.cpus.erase(topology.cpus.begin());  // and CPU 2; of that core only CPU 14 is left
  CHECK(lists(share_cpus(topology, NumaBinding::Node, {0}, 1)) == Texts{"14"});
}

TEST_CASE("numa binding: without a GPU workers are spread over the nodes in blocks", "[launcher][unit]") {
  const CpuSet allowed = allowed_cpus();
  if (allowed.size() < 2) return;  // nothing to spread
  const int first = *allowed.begin();
  const int second = *std::next(allowed.begin());
  const ddp::testing::FakeSysfs sysfs;
  sysfs.node(0, std::to_string(first));
  CpuSet others = allowed;
  others.erase(first);
  sysfs.node(1, to_cpu_list(others));
  for (const std::optional<std::string>& no_gpu : {std::optional<std::string>(), std::optional<std::string>("")}) {
    const auto bindings = bind_workers(NumaBinding::Node, 3, no_gpu, sysfs.path());
    REQUIRE(bindings.size() == 3);
    CHECK(bindings[0].cpus == CpuSet{first});
    CHECK(bindings[1].cpus == CpuSet{first});
    CHECK(bindings[2].cpus.count(second) == 1);
    CHECK(bindings[2].numa_node == 1);
    CHECK(bindings[2].gpu.empty());
  }
}

TEST_CASE("numa binding: GPUs are refused if their place cannot be found", "[launcher][unit]") {
  CHECK_THROWS_WITH(bind_workers(NumaBinding::Node, 1, "0"), Catch::Contains("GPU 0") && Catch::Contains("NVML"));
}

TEST_CASE("numa binding: the table has a line for each worker", "[launcher][unit]") {
  CHECK(bindings_table({{"4", 0, {0, 1, 2}}, {"", 11, {8}}}) ==
        "LOCAL_RANK  GPU  NUMA NODE  CPUS\n"
        "0           4    0          0-2\n"
        "1           -    11         8\n");
}
