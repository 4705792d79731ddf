// SPDX-License-Identifier: BSD-3-Clause
// What machines do to jobs under Slurm: they lose power, and they have few CPUs and little memory.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/integration/slurm/cluster.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

Words on_nodes(const std::string& nodes) {
  return {"--partition=mortal", "--nodelist=" + nodes, "--ntasks-per-node=1", "--no-requeue"};
}

// A worker that ends once the file is there that says that a node was lost.
const std::string kGoesOn =
    "sh -c 'echo \"rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME\"; [ -e lost.$SLURM_JOB_ID ] || exec sleep 1000'";

}  // namespace

TEST_CASE("slurm: when a node loses power the workers of the other one end, and the job fails",
          "[slurm][integration]") {
  Slurm slurm;
  slurm.power_on({"node7", "node8"});
  const BatchJob job(slurm, on_nodes("node7,node8"), "exec srun ddprun --nproc-per-node 2 fake_worker ready wait");
  job.wait_for("ready", 4);
  slurm.power_cut("node8");
  job.wait_for_launchers();
  slurm.declare_lost("node8");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK((end.states == Words{"NODE_FAIL"} || end.states == Words{"FAILED"}));
  CHECK(job.all_gone());
}

TEST_CASE("slurm: with --no-kill a spare node takes the place of a lost one", "[slurm][integration]") {
  Slurm slurm;
  slurm.power_on({"node4", "node5", "node6"});
  const BatchJob job(slurm, on_nodes("node4,node5,node6") + Words{"--no-kill"},
                     "exec srun --no-kill ddprun --nproc-per-node 2 --nnodes 2:2 --max-restarts 3 --rdzv-backend c10d "
                     "--rdzv-conf keep_alive_interval=1 " +
                         kGoesOn);
  job.wait_for("of 4", 4);
  write_file(slurm.home("lost." + job.id()), "");
  const bool is_spare = count(job.out(), "on node5") == 0;  // node4 coordinates, either of the others is the spare
  const std::string lost = is_spare ? "node6" : "node5", spare = is_spare ? "on node5" : "on node6";
  slurm.power_cut(lost);
  job.wait_for(spare, 2);
  slurm.declare_lost(lost);
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"COMPLETED"});
  CHECK(count(end.out, spare) == 2);
  CHECK(job.all_gone());
}

TEST_CASE("slurm: with --no-kill an elastic job goes on without the lost node", "[slurm][integration]") {
  only_in_full_run();
  Slurm slurm;
  slurm.power_on({"node7", "node8"});
  const BatchJob job(slurm, on_nodes("node7,node8") + Words{"--no-kill"},
                     "exec srun --no-kill ddprun --nproc-per-node 2 --nnodes 1:2 --rdzv-backend c10d "
                     "--rdzv-conf keep_alive_interval=1 " +
                         kGoesOn);
  job.wait_for("of 4", 4);
  write_file(slurm.home("lost." + job.id()), "");
  slurm.power_cut("node8");
  job.wait_for("of 2", 2);
  slurm.declare_lost("node8");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"COMPLETED"});
  CHECK(count(end.out, "of 2") == 2);
  CHECK(job.all_gone());
}

TEST_CASE("slurm: a job whose node loses power is queued again", "[slurm][integration]") {
  only_in_full_run();
  Slurm slurm;
  slurm.power_on({"node7", "node8"});
  const BatchJob job(slurm, {"--partition=mortal", "--nodelist=node7,node8", "--ntasks-per-node=1", "--requeue"},
                     "exec srun ddprun --nproc-per-node 2 sh -c 'echo life ${SLURM_RESTART_COUNT:-0}; "
                     "[ -n \"$SLURM_RESTART_COUNT\" ] || exec sleep 1000'");
  job.wait_for("life 0", 4);
  slurm.power_cut("node8");
  job.wait_for_launchers();
  slurm.declare_lost("node8");
  slurm.power_on({"node8"});
  job.hurry();
  job.wait_for("life 1", 4);
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"COMPLETED"});
  CHECK(count(end.out, "life 1") == 4);
  CHECK(job.all_gone());
}

TEST_CASE("slurm: a warning says that workers share the CPU of one task", "[slurm][integration]") {
  if (std::thread::hardware_concurrency() < 2) skip("a machine with one CPU has no more for anybody");
  const Slurm slurm;
  slurm.need_limits();
  const BatchJob job(
      slurm, {"--partition=tight", "--ntasks=1"},
      "srun ddprun --nproc-per-node 8 fake_worker 0:cpus; exec srun ddprun --nproc-per-node 1 fake_worker");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"COMPLETED"});
  CHECK(count(end.out,
              "8 workers share 1 CPU, since Slurm lets this task use no more; ask for --exclusive or "
              "--cpus-per-task=8") == 1);
  CHECK(count(end.out, "share") == 1);
}

TEST_CASE("slurm: a worker that needs more memory than the step may have is reported so", "[slurm][integration]") {
  skip_with_sanitizer("ddprun itself needs more memory than the limit");
  const Slurm slurm;
  slurm.need_limits();
  const BatchJob job(slurm, {"--partition=tight", "--ntasks=1", "--mem=150"},
                     "exec srun ddprun --nproc-per-node 2 fake_worker 1:eat=500 wait");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"FAILED"});  // the step is OUT_OF_MEMORY, which only slurmdbd remembers
  CHECK_THAT(end.out, Contains("out of memory: the kernel killed a process of this job's cgroup") &&
                          Contains("srun: error: node9: task 0: Out Of Memory"));
  CHECK(job.all_gone());
}
