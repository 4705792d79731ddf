// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/topology.hpp"

#include <catch2/catch.hpp>

#include "tests/support/fake_sysfs.hpp"

using namespace ddp::launcher;

TEST_CASE("topology: CPU lists are written as the kernel writes them", "[launcher][unit]") {
  CHECK(to_cpu_list({0, 1, 2, 4, 6, 7}) == "0-2,4,6-7");
  CHECK(to_cpu_list({}).empty());
  CHECK(to_cpu_list({1023}) == "1023");
}

TEST_CASE("topology: a mask has one bit per CPU, also beyond 1,024", "[launcher][unit]") {
  CHECK(to_mask({0, 3}) == std::vector<unsigned long>{9});
  const auto wide = to_mask({64, 1500});
  REQUIRE(wide.size() == 24);
  CHECK(wide[1] == 1UL);
  CHECK(wide[23] == 1UL << (1500 % 64));
}

TEST_CASE("topology: cores, caches, sockets and NUMA nodes of the CPUs that may be used", "[launcher][unit]") {
  const ddp::testing::FakeSysfs sysfs;
  sysfs.node(0, "0-1,4-5");
  sysfs.node(1, "2-3,6-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int core = cpu % 4;
    const std::string siblings = std::to_string(core) + "," + std::to_string(core + 4);
    sysfs.cpu(cpu, core / 2, siblings, core < 2 ? "0-1,4-5" : siblings);
  }
  const Topology topology = read_topology(sysfs.path(), {1, 3, 5, 6});
  REQUIRE(topology.cpus.size() == 4);
  CHECK(topology.nodes() == std::vector<int>{0, 1});
  CHECK(topology.of_node(0) == CpuSet{1, 5});
  CHECK(topology.of_node(1) == CpuSet{3, 6});
  const Cpu& five = topology.cpus[2];
  CHECK(five.number == 5);
  CHECK(five.core == 1);
  CHECK(five.core_complex == 0);  // instruction caches do not count, and the highest level does
  CHECK(five.socket == 0);
  CHECK(topology.cpus[3].core_complex == 2);
  CHECK(topology.cpus[3].socket == 1);
}

TEST_CASE("topology: without sysfs there is one node, one cache and a core for each CPU", "[launcher][unit]") {
  const Topology topology = read_topology("/nonexistent", {0, 1});
  CHECK(topology.nodes() == std::vector<int>{0});
  CHECK(topology.cpus[0].core != topology.cpus[1].core);
  CHECK(topology.cpus[0].core_complex == topology.cpus[1].core_complex);
}

TEST_CASE("topology: a device's node is the one in sysfs, 0 if the machine has only one", "[launcher][unit]") {
  const ddp::testing::FakeSysfs sysfs;
  sysfs.device("0000:17:00.0", 1);
  sysfs.device("0000:18:00.0", -1);
  CHECK(numa_node_of_device(sysfs.path(), "0000:17:00.0") == 1);
  CHECK(numa_node_of_device(sysfs.path(), "0000:18:00.0") == 0);
  CHECK_FALSE(numa_node_of_device(sysfs.path(), "0000:19:00.0"));
}
