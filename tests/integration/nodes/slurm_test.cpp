// SPDX-License-Identifier: BSD-3-Clause
// Jobs in steps of Slurm, by the variables that srun sets. Two of them may share their nodes.
#include <catch2/catch.hpp>
#include <csignal>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

// The environment of one task of a step on node0 and node1, as srun of Slurm 22.05 sets it.
Process::Options in_step(int job, int step, int node) {
  return {.environment = {{"SLURM_JOB_ID", std::to_string(job)},
                          {"SLURM_STEP_ID", std::to_string(step)},
                          {"SLURM_NODEID", std::to_string(node)},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_NODELIST", "node[0-1]"}}};
}

}  // namespace

TEST_CASE("slurm: two jobs on the same nodes stay apart, even if all of their ports are the same",
          "[launcher][integration]") {
  constexpr int kOne = 4711, kOther = kOne + 750;  // 750 jobs of 16 ports are all of the ports
  const Hosts hosts(2);
  const std::vector<Words> kinds = {{}, {"--rdzv-backend=c10d"}};
  for (const Words& options : kinds) {
    CAPTURE(options);
    NodesJob one(hosts, options, {"meet", "env=TORCHELASTIC_RUN_ID", "wait"});
    NodesJob other(hosts, options, {"meet", "env=TORCHELASTIC_RUN_ID"});
    for (const int host : {1, 0}) one.start(host, {}, in_step(kOne, 0, host));
    for (const int host : {1, 0}) one.on(host).wait_for("[TORCHELASTIC_RUN_ID=slurm-4711.0]");
    for (const int host : {1, 0}) other.start(host, {}, in_step(kOther, 0, host));
    for (const int host : {1, 0}) {
      const Result result = other.on(host).wait();
      CAPTURE(host, result.out, result.err);
      CHECK(result.code == 0);
      CHECK(count(result.out, "met 2") == 1);
      CHECK(count(result.out, "[TORCHELASTIC_RUN_ID=slurm-5461.0]") == 1);
    }
    one.on(0).signal(SIGTERM);
    for (const int host : {1, 0}) CHECK(one.on(host).wait().code == 128 + SIGTERM);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("slurm: two jobs that are given one endpoint are not merged", "[launcher][integration]") {
  const Hosts hosts(2);
  const Words usual = {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29500"};
  NodesJob one(hosts, usual, {"say=started"}), other(hosts, usual, {"say=started"});
  one.start(0, {}, in_step(7, 0, 0)).wait_for("1 of 2 there");
  const Result refused = other.start(1, {}, in_step(8, 0, 1)).wait();
  CHECK(refused.code == 1);
  CHECK(count(refused.err, "the coordinator's job has another --rdzv-id than 'slurm-8.0' of this host") == 1);
  CHECK(refused.out.empty());
  one.start(1, {}, in_step(7, 0, 1));
  for (const int host : {0, 1}) CHECK(one.on(host).wait().code == 0);
  CHECK(hosts.all_gone());
}
