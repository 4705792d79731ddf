// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/machine/cpus.hpp"

#include <sched.h>

#include <catch2/catch.hpp>

#include "tests/support/fake_sysfs.hpp"
#include "tests/support/program_locale.hpp"

using namespace ddp::rendezvous;
using ddp::testing::FakeSysfs;

TEST_CASE("CPUs: lists are read as the kernel writes them", "[rendezvous][unit]") {
  CHECK(parse_cpu_list("0-2,4,6-7\n") == CpuSet{0, 1, 2, 4, 6, 7});
  CHECK(parse_cpu_list("").empty());
  CHECK(parse_cpu_list("\n").empty());
  CHECK(parse_cpu_list("5") == CpuSet{5});
  const ddp::testing::ProgramLocale locale;
  CHECK(parse_cpu_list("0-2,4,6-7\n") == CpuSet{0, 1, 2, 4, 6, 7});
}

TEST_CASE("CPUs: those that are allowed are those that the kernel reports", "[rendezvous][unit]") {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  const CpuSet allowed = allowed_cpus();
  CHECK(static_cast<int>(allowed.size()) == CPU_COUNT(&set));
  for (const int cpu : allowed) CHECK(CPU_ISSET(static_cast<std::size_t>(cpu), &set));
}

TEST_CASE("CPUs: a set of them is on a NUMA node if all of them are", "[rendezvous][unit]") {
  const FakeSysfs two;
  two.node(0, "0-1,4-5");
  two.node(1, "2-3,6-7");
  const auto nodes = numa_node_of_cpus(two.path());
  CHECK(nodes.size() == 8);
  CHECK(numa_node_of({0, 5}, nodes) == 0);
  CHECK(numa_node_of({3}, nodes) == 1);
  CHECK_FALSE(numa_node_of({1, 2}, nodes));
  CHECK_FALSE(numa_node_of({}, nodes));
}

TEST_CASE("CPUs: the only NUMA node of a machine has all of them", "[rendezvous][unit]") {
  const FakeSysfs one;
  one.node(0, "0-63");
  CHECK(numa_node_of({0, 17, 63}, numa_node_of_cpus(one.path())) == 0);
}

TEST_CASE("CPUs: NUMA nodes have any numbers, those of memory only have no CPU, and a CPU that is offline no node",
          "[rendezvous][unit]") {
  const FakeSysfs four;
  four.node(0, "0-1");
  four.node(2, "4");  // 5 is offline
  four.node(8, "8-9");
  four.node(12, "2,6");
  four.node(255, "");
  const auto nodes = numa_node_of_cpus(four.path());
  CHECK(numa_node_of({0, 1}, nodes) == 0);
  CHECK(numa_node_of({4}, nodes) == 2);
  CHECK_FALSE(numa_node_of({4, 5}, nodes));
  CHECK(numa_node_of({8, 9}, nodes) == 8);
  CHECK(numa_node_of({2, 6}, nodes) == 12);
  for (const auto& [cpu, node] : nodes) CHECK(node != 255);
}

TEST_CASE("CPUs: none has a NUMA node where sysfs shows none", "[rendezvous][unit]") {
  CHECK(numa_node_of_cpus("/nonexistent").empty());
  CHECK_FALSE(numa_node_of({0}, {}));
}
