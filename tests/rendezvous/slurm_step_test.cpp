// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

using ddp::rendezvous::first_node_of_step;
using ddp::rendezvous::slurm_step;
using ddp::rendezvous::SlurmVariable;
using ddp::rendezvous::tasks_on_node;

namespace {

using Variables = std::map<std::string, std::string>;

SlurmVariable in(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
}

// As Slurm 22.05 sets them on node2 for `srun --het-group=0,1`: one task on node2, two each on node1 and node3.
Variables heterogeneous(const Variables& changes = {}) {
  Variables result = {{"SLURM_HET_SIZE", "2"},
                      {"SLURM_JOB_NODELIST_HET_GROUP_0", "node2"},
                      {"SLURM_JOB_NODELIST_HET_GROUP_1", "node[1,3]"},
                      {"SLURM_STEP_NODELIST", "node[1-3]"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2,1,2"},
                      {"SLURMD_NODENAME", "node2"},
                      {"SLURM_NODEID", "0"}};
  for (const auto& [name, value] : changes) result[name] = value;
  return result;
}

}  // namespace

TEST_CASE("slurm step: its id and its ports follow from the numbers of job and step", "[rendezvous][unit]") {
  const auto step = slurm_step("1000", "2");
  REQUIRE(step);
  CHECK(step->id == "slurm-1000.2");
  CHECK(step->ports.front() == 20000 + (1000 * 16 + 2) % 12000);
  CHECK(step->ports.size() == 8);
  CHECK(slurm_step("1000", "2")->ports == step->ports);
  for (const char* no_number : {"", "x", "1000_2", "-1"}) {
    CHECK_FALSE(slurm_step(no_number, "0"));
    CHECK_FALSE(slurm_step("1000", no_number));
  }
}

TEST_CASE("slurm step: no port of a step is the first choice of a neighbour", "[rendezvous][unit]") {
  std::set<std::uint16_t> firsts;
  for (int job = 4711000; job < 4711050; ++job) {
    for (int step = 0; step < 16; ++step)
      firsts.insert(slurm_step(std::to_string(job), std::to_string(step))->ports[0]);
  }
  CHECK(firsts.size() == 50 * 16);
  for (int job = 4711000; job < 4711050; ++job) {
    const auto ports = slurm_step(std::to_string(job), "0")->ports;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      CHECK(ports[i] >= 20000);
      CHECK(ports[i] < 32000);
      if (i > 0) CHECK(firsts.count(ports[i]) == 0);
    }
  }
}

TEST_CASE("slurm step: its first node is its list's, of a heterogeneous job its first component's",
          "[rendezvous][unit]") {
  CHECK(first_node_of_step(in({{"SLURM_STEP_NODELIST", "gpu[03-04,12]"}, {"SLURM_NODELIST", "a"}})) == "gpu03");
  CHECK(first_node_of_step(in({{"SLURM_JOB_NODELIST", "a,b"}})) == "a");
  CHECK(first_node_of_step(in({})).empty());
  CHECK(first_node_of_step(in(heterogeneous())) == "node2");
  CHECK(first_node_of_step(in(heterogeneous({{"SLURM_STEP_NODELIST", "node[1,3]"}}))) == "node1");  // --het-group=1
  for (const char* no_list : {"", "node[", "node4"}) {
    CHECK(first_node_of_step(in(heterogeneous(
              {{"SLURM_JOB_NODELIST_HET_GROUP_0", no_list}, {"SLURM_JOB_NODELIST_HET_GROUP_1", no_list}}))) == "node1");
  }
}

TEST_CASE("slurm step: the tasks of a node are found by its name, else by its number", "[rendezvous][unit]") {
  CHECK(tasks_on_node(in(heterogeneous())) == 1);
  CHECK(tasks_on_node(in(heterogeneous({{"SLURMD_NODENAME", "node1"}, {"SLURM_NODEID", "1"}}))) == 2);
  const Variables unnamed = {
      {"SLURM_TASKS_PER_NODE", "16(x2),3"}, {"SLURM_STEP_NODELIST", "a[1-3]"}, {"SLURM_NODEID", "2"}};
  CHECK(tasks_on_node(in(unnamed)) == 3);
  CHECK_FALSE(tasks_on_node(in({{"SLURM_NODEID", "2"}})));
  CHECK_FALSE(tasks_on_node(in({{"SLURM_TASKS_PER_NODE", "2"}})));
}
