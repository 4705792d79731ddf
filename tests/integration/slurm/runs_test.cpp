// SPDX-License-Identifier: BSD-3-Clause
// How jobs are started under Slurm: by srun, by themselves, in arrays, in steps, in several components, and beside each
// other.
#include <catch2/catch.hpp>
#include <tuple>
#include <utility>

#include "rendezvous/slurm_step.hpp"
#include "tests/integration/slurm/cluster.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

void check_completed(const BatchJob& job, const BatchJob::End& end) {
  CHECK(end.states == Words(end.states.size(), "COMPLETED"));
  CHECK(end.exit_codes == Words(end.exit_codes.size(), "0:0"));
  CHECK(job.all_gone());
}

// A worker that ends once workers of this many runs are there.
std::string beside(const std::string& folder, int runs) {
  return "mkdir -p " + folder + "; touch " + folder + "/$TORCHELASTIC_RUN_ID; while [ $(ls " + folder +
         " | wc -l) -lt " + std::to_string(runs) + " ]; do sleep 0.05; done";
}

}  // namespace

TEST_CASE("slurm: one srun in a batch script is one job, and job and step give it id and port",
          "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes,
                     "exec srun ddprun --nproc-per-node 2 fake_worker place meet env=TORCHELASTIC_RUN_ID");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_completed(job, end);
  CHECK(count(end.out, "met 4") == 4);
  CHECK(count(end.out, "[TORCHELASTIC_RUN_ID=slurm-" + job.id() + ".0]") == 4);
  const auto step = ddp::rendezvous::slurm_step(job.id(), "0");
  CHECK(count(end.out, ":" + std::to_string(step->ports.front()) + "\n") == 4);
}

TEST_CASE("slurm: without srun, ddprun starts itself on all nodes", "[slurm][integration]") {
  const Slurm slurm;
  const Words worker = {"ddprun", "--nproc-per-node", "2", "fake_worker", "meet"};
  const BatchJob job(slurm, kTwoNodes, "exec ddprun --nproc-per-node 2 fake_worker meet");
  Process salloc(slurm.as_user(Words{"salloc", "--nodes=2", "--ntasks-per-node=1"} + worker));
  Process shell(slurm.as_user(Words{"srun", "--nodes=2", "--ntasks-per-node=1", "--pty"} + worker),
                {.on_terminal = true});
  for (Process* process : {&salloc, &shell}) {
    const Result result = process->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 4") == 4);
    CHECK(count(result.out + result.err, "and ddprun runs on one: srun --nodes=2 --ntasks=2") == 1);
    CHECK(process->all_gone());
  }
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_completed(job, end);
  CHECK(count(end.out, "met 4") == 4);
}

TEST_CASE("slurm: tasks of an array, and steps of a job, run beside each other on the same nodes",
          "[slurm][integration]") {
  const Slurm slurm;
  const Words nodes = kTwoNodes + Words{"--nodelist=node1,node2"};
  const BatchJob array(slurm, nodes + Words{"--array=0-2"},
                       "exec srun ddprun sh -c '" + beside("array.$SLURM_ARRAY_JOB_ID", 3) + "'");
  const BatchJob steps(slurm, nodes,
                       "for step in 1 2; do srun --overlap ddprun sh -c '" + beside("steps.$SLURM_JOB_ID", 2) +
                           "' & done\nwait -n && wait -n");
  for (const BatchJob* job : {&array, &steps}) {
    const BatchJob::End end = job->wait();
    CAPTURE(end.out);
    CHECK(end.states.size() == (job == &array ? 3 : 1));
    check_completed(*job, end);
  }
}

TEST_CASE("slurm: the components of a heterogeneous job are one job, of ddprun and of libddp", "[slurm][integration]") {
  const Slurm slurm;
  // The first component's node is not the first by its name.
  const auto components = [](const std::string& tasks) {
    return "#SBATCH --nodes=1 --ntasks-per-node=1 --nodelist=node2\n#SBATCH hetjob\n"
           "#SBATCH --nodes=2 --nodelist=node1,node3 --ntasks-per-node=" +
           tasks + "\nexec srun --het-group=0,1 ";
  };
  const BatchJob by_ddprun(slurm, {}, components("1") + "ddprun --nproc-per-node 2 fake_worker meet");
  const BatchJob by_srun(slurm, {}, components("2") + "train --steps 2");
  for (const auto& [job, said, times] :
       {std::tuple(&by_ddprun, "met 6", 6), std::tuple(&by_srun, "job: 5 workers", 1)}) {
    const BatchJob::End end = job->wait();
    CAPTURE(end.out);
    check_completed(*job, end);
    CHECK(count(end.out, said) == times);
  }
}

TEST_CASE("slurm: srun starts a program of libddp without ddprun", "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob job(slurm, {"--nodes=2", "--ntasks-per-node=2"}, "exec srun train --steps 2");
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_completed(job, end);
  CHECK_THAT(end.out, Contains("job: 4 workers"));
}

TEST_CASE("slurm: the script of docs/clusters.md runs", "[slurm][integration]") {
  only_in_full_run();  // it wants all nodes for itself
  const Slurm slurm;
  const std::string page = read_file(CLUSTERS_PAGE);
  const std::size_t begin = page.find("#SBATCH");
  std::string script = page.substr(begin, page.find("```", begin) - begin);
  for (const auto& [there, here] : std::vector<std::pair<std::string, std::string>>{
           {"--nodes=4", "--nodes=3"}, {"--gpus-per-node=8", "--gpus-per-node=4"}, {"train.py", "fake_worker meet"}}) {
    REQUIRE(count(script, there) == 1);
    script.replace(script.find(there), there.size(), here);
  }
  const BatchJob job(slurm, {}, script);
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_completed(job, end);
  CHECK(count(end.out, "met 12") == 12);
}

TEST_CASE("slurm: an mpirun in an allocation starts one job on all of its nodes", "[slurm][integration]") {
  only_in_full_run();
  const Slurm slurm;
  const Words starters = {"mpirun.openmpi --map-by ppr:1:node --oversubscribe", "mpiexec.hydra -ppn 1"};
  for (const std::string& starter : starters) {
    if (run({"sh", "-c", "command -v " + starter.substr(0, starter.find(' '))}).code != 0) continue;
    const BatchJob job(slurm, {"--nodes=3", "--ntasks-per-node=1"},
                       "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; exec " + starter +
                           " ddprun --nproc-per-node 2 fake_worker meet");
    const BatchJob::End end = job.wait();
    CAPTURE(starter, end.out);
    check_completed(job, end);
    CHECK(count(end.out, "met 6") == 6);
  }
}
