// SPDX-License-Identifier: BSD-3-Clause
// What ddprun takes from each platform's variables, which recorded/ has.
#include "apps/ddprun/options/nodes/platform_options.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/ddprun/options/nodes/environment_page.hpp"
#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using ddp::launcher::Surroundings;

namespace {

using Variables = std::map<std::string, std::string>;

// Returns the variables in a file of recorded/.
Variables recorded(const std::string& name) {
  std::ifstream file(std::string(RECORDED_PLATFORMS) + "/" + name + ".env");
  REQUIRE(file);
  Variables variables;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto equals = line.find('=');
    std::string value = line.substr(equals + 1);
    for (std::size_t at = 0; (at = value.find("\\n", at)) != std::string::npos;) value.replace(at, 2, "\n");
    variables[line.substr(0, equals)] = value;
  }
  return variables;
}

Surroundings place(const Variables& variables, const std::string& host = "here") {
  return {.variable =
              [variables](const char* name) {
                const auto found = variables.find(name);
                return found == variables.end() ? std::string() : found->second;
              },
          .file = [](const std::string& path) { return std::string(path == "/nodes" ? "n1\nn1\nn2\nn3\n" : ""); },
          .host = host};
}

NodeOptions given_by_pet(const Variables& variables) {
  NodeOptions options;
  if (variables.contains("PET_NNODES")) options.nnodes = variables.at("PET_NNODES");
  if (variables.contains("PET_NODE_RANK")) options.node_rank = std::stoi(variables.at("PET_NODE_RANK"));
  if (variables.contains("PET_MASTER_ADDR")) options.master_addr = variables.at("PET_MASTER_ADDR");
  if (variables.contains("PET_MASTER_PORT")) options.master_port = std::stoi(variables.at("PET_MASTER_PORT"));
  return options;
}

std::string line_of(const FromPlatform& taken) {
  const std::string workers = taken.workers ? " --nproc-per-node " + std::to_string(*taken.workers) : "";
  return taken.platform.empty() ? "" : taken.platform + ":" + taken.options + workers;
}

std::string refusal(NodeOptions options, const Surroundings& here) {
  try {
    fill_from_platform(options, here);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

namespace {

struct Case {
  std::string name;  // the name of a file in recorded/
  std::string line;  // what is taken; empty: nothing
  std::string host = "here";
};

const std::vector<Case> kCases = {
    {"skypilot",
     "SkyPilot: --nnodes 3 --node-rank 1 --master-addr 10.0.4.7 --master-port 21084 --rdzv-id "
     "sky-2026-11-02-10-15-42-563597_cluster_1 --nproc-per-node 8"},
    {"skypilot_0_5",
     "SkyPilot: --nnodes 2 --node-rank 0 --master-addr 10.0.4.7 --master-port 21475 --rdzv-id "
     "sky-2024-03-01-08-00-00-000001_old_2"},
    {"dstack",
     "dstack: --nnodes 2 --node-rank 1 --master-addr 10.128.0.47 --master-port 25363 --rdzv-id "
     "6a1b0e5c-5f0e-4a7b-9f0d-0d1c2b3a4f5e --nproc-per-node 4"},
    {"sagemaker",
     "SageMaker: --nnodes 2 --node-rank 1 --master-addr algo-1 --master-port 20002 --rdzv-id "
     "gpt-2026-11-02-10-15-42-563 --nproc-per-node 8"},
    {"lepton",
     "Lepton: --nnodes 4 --node-rank 2 --master-addr gpt-job-0.gpt-job-svc --master-port 28036 --rdzv-id "
     "gpt-job --nproc-per-node 8"},
    {"aws_batch_child",
     "AWS Batch: --nnodes 3 --node-rank 1 --master-addr 10.0.0.12 --master-port 20283 --rdzv-id "
     "3f1c2d4e-0000-4a5b-8c9d-1e2f3a4b5c6d"},
    {"aws_batch_main",
     "AWS Batch: --nnodes 3 --node-rank 0 --master-addr here --master-port 20283 --rdzv-id "
     "3f1c2d4e-0000-4a5b-8c9d-1e2f3a4b5c6d"},
    {"lsf", "LSF: --nnodes 2 --node-rank 1 --master-addr gpu01 --master-port 23602 --rdzv-id lsf-4711",
     "gpu02.cluster"},
    {"pbs_first", "PBS: --nnodes 3 --node-rank 0 --master-addr n1 --master-port 27988 --rdzv-id pbs-1234.server"},
    {"pbs_script", "refused"},
    {"pbs_other", "refused"},
    {"pals", "PALS and MASTER_ADDR: --nnodes 2 --node-rank 1 --master-addr x1000c0s0b0n0 --master-port 29400"},
    {"jsrun", "Open MPI and MASTER_ADDR: --nnodes 2 --node-rank 1 --master-addr gpu01 --master-port 29400"},
    {"kubernetes_indexed_job", ""},  // --nnodes is the manifest's to give, see below
    {"jobset", "refused"},
    {"pytorchjob_early",
     "the pod's variables: --nnodes 3 --node-rank 2 --master-addr job-master-0 --master-port 23456"},
    {"pytorchjob_early_master", "the pod's variables: --nnodes 3 --node-rank 0 --master-addr here --master-port 23456"},
    {"volcano", "Volcano: --nnodes 3 --node-rank 1 --master-addr pytorch-job-master-0.pytorch-job --master-port 23456"},
    {"pai_dlc",
     "the pod's variables: --nnodes 2 --node-rank 1 --master-addr dlc-master-0 --master-port 23456 "
     "--nproc-per-node 8"},
    {"pytorchjob", ""},
    {"trainer_v2", ""},
};

}  // namespace

TEST_CASE("platforms: the variables of each make one job of its nodes without a flag", "[ddprun][unit]") {
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const Variables variables = recorded(one.name);
    NodeOptions options = given_by_pet(variables);
    if (one.line == "refused") {
      CHECK_FALSE(refusal(options, place(variables, one.host)).empty());
    } else {
      CHECK(line_of(fill_from_platform(options, place(variables, one.host))) == one.line);
    }
  }
}

TEST_CASE("platforms: all recorded variables are tested", "[ddprun][unit]") {
  for (const auto& entry : std::filesystem::directory_iterator(RECORDED_PLATFORMS)) {
    if (entry.path().extension() != ".env") continue;
    CAPTURE(entry.path());
    const auto is_of_file = [&](const Case& one) { return one.name == entry.path().stem(); };
    CHECK(std::any_of(kCases.begin(), kCases.end(), is_of_file));
  }
}

TEST_CASE("platforms: a pod's index is its node rank, and MASTER_ADDR its master, where --nnodes is given",
          "[ddprun][unit]") {
  NodeOptions indexed{.nnodes = "4", .master_addr = "train-0.train"};
  CHECK(line_of(fill_from_platform(indexed, place(recorded("kubernetes_indexed_job")))) ==
        "Kubernetes (JOB_COMPLETION_INDEX): --node-rank 3");
  NodeOptions jobset{.nnodes = "2"};
  CHECK(line_of(fill_from_platform(jobset, place(recorded("jobset")))) ==
        "Kubernetes (JOB_COMPLETION_INDEX) and MASTER_ADDR: --node-rank 1 --master-addr pytorch-workers-0-0.pytorch "
        "--master-port 3389");
  NodeOptions elastic{.nnodes = "1:4", .rdzv_backend = "c10d"};
  CHECK(line_of(fill_from_platform(elastic, place(recorded("jobset")))) ==
        "MASTER_ADDR: --rdzv-endpoint pytorch-workers-0-0.pytorch:3389");
}

TEST_CASE("platforms: what the user gives counts, and --standalone or one node leaves the platform out",
          "[ddprun][unit]") {
  const Surroundings here = place(recorded("skypilot"));
  for (NodeOptions alone : {NodeOptions{.nnodes = "1"}, NodeOptions{.standalone = true}}) {
    CHECK(line_of(fill_from_platform(alone, here)).empty());
    CHECK_FALSE(alone.node_rank);
  }
  NodeOptions given{.nnodes = "3", .node_rank = 0, .master_addr = "x", .rdzv_id = "mine"};
  CHECK(line_of(fill_from_platform(given, here)).empty());
  NodeOptions port{.master_port = 29500};
  fill_from_platform(port, here);
  CHECK(port.master_port == 29500);
  CHECK(port.next_ports.empty());
}

TEST_CASE("platforms: within a worker of another job nothing is taken", "[ddprun][unit]") {
  Variables variables = recorded("skypilot");
  variables["TORCHELASTIC_RUN_ID"] = "outer";
  NodeOptions options;
  CHECK(line_of(fill_from_platform(options, place(variables))).empty());
  CHECK_FALSE(options.nnodes);
}

TEST_CASE("platforms: contradictions are refused with both values", "[ddprun][unit]") {
  Variables rank = recorded("dstack");
  rank["DSTACK_NODE_RANK"] = "2";
  CHECK(refusal({}, place(rank)) ==
        "dstack contradicts itself: DSTACK_NODE_RANK is \"2\", and DSTACK_NODES_NUM is \"2\"; give --nnodes, "
        "--node-rank and --master-addr, or --standalone");
  Variables addresses = recorded("skypilot");
  addresses["SKYPILOT_NUM_NODES"] = "2";
  CHECK_THAT(refusal({}, place(addresses)), Catch::Contains("SKYPILOT_NUM_NODES is \"2\", and SKYPILOT_NODE_IPS is"));
  Variables word = recorded("sagemaker");
  word["SM_CURRENT_HOST"] = "algo-7";
  CHECK_THAT(refusal({}, place(word)), Catch::Contains("algo-7") && Catch::Contains("[\"algo-1\",\"algo-2\"]"));
  Variables number = recorded("dstack");
  number["DSTACK_NODES_NUM"] = "two";
  CHECK_THAT(refusal({}, place(number)), Catch::StartsWith("DSTACK_NODES_NUM is \"two\", not a number"));
  CHECK(refusal({.nnodes = "5"}, place(recorded("skypilot"))) ==
        "--nnodes 5, but SkyPilot says that there are 3 nodes; leave --nnodes out, or give --node-rank and "
        "--master-addr too");
}

TEST_CASE("platforms: several ddprun that nothing makes one job are refused with what to do instead",
          "[ddprun][unit]") {
  const Variables mpirun = {{"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"MASTER_ADDR", "a"}};
  CHECK_THAT(refusal({}, place(mpirun)), Catch::StartsWith("mpirun has started 4 ddprun on this host") &&
                                             Catch::Contains("mpirun --map-by ppr:1:node ddprun"));
  CHECK(refusal({.standalone = true}, place(mpirun)).empty());
  const Variables mpiexec = {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK_THAT(refusal({}, place(mpiexec)), Catch::Contains("mpiexec -ppn 1 ddprun"));
  const Variables tasks = {{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "1"},
                           {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NODEID", "0"},  {"SLURM_PROCID", "1"}};
  CHECK_THAT(refusal({}, place(tasks)), Catch::StartsWith("srun has started 2 ddprun on 1 node, each of which"));
  CHECK_THAT(refusal({}, place(recorded("pbs_script"))), Catch::Contains("has 3 nodes") && Catch::Contains("pbsdsh"));
  CHECK_THAT(refusal({}, place(recorded("pbs_other"))), Catch::Contains("--nnodes"));
  const Variables no_address = {
      {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  CHECK_THAT(refusal({}, place(no_address)), Catch::Contains("not where they meet"));
}

TEST_CASE("platforms: in an allocation of Slurm, outside of a step, srun starts ddprun on all nodes",
          "[ddprun][unit]") {
  Variables script = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_PROCID", "0"}};
  NodeOptions options;
  const FromPlatform taken = fill_from_platform(options, place(script));
  REQUIRE(taken.start_on_all.size() > 3);
  CHECK(taken.start_on_all[0] == "srun");
  CHECK(taken.start_on_all[1] == "--nodes=3");
  CHECK_FALSE(options.nnodes);
  // srun --pty: variables of a step over all nodes, and a shell on the first one.
  Variables terminal = {{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NUM_TASKS", "3"},
                        {"SLURM_NODEID", "0"},         {"SLURM_JOB_NUM_NODES", "3"},
                        {"SLURM_PTY_PORT", "40000"},   {"SLURM_STEP_NODELIST", "a[1-3]"}};
  CHECK_FALSE(fill_from_platform(options, place(terminal)).start_on_all.empty());
  script["SLURM_JOB_NUM_NODES"] = "1";
  CHECK(fill_from_platform(options, place(script)).start_on_all.empty());
  NodeOptions alone{.nnodes = "1"};
  CHECK(fill_from_platform(alone, place(terminal)).start_on_all.empty());
  terminal["SLURM_HET_SIZE"] = "2";
  CHECK_THAT(refusal({}, place(terminal)), Catch::Contains("--het-group"));
}

TEST_CASE("platforms: a process is a task of Slurm if its pid is the task's", "[ddprun][unit]") {
  CHECK(ddp::launcher::is_task_of_slurm(place({{"SLURM_TASK_PID", "4711"}}), 4711));
  CHECK_FALSE(ddp::launcher::is_task_of_slurm(place({{"SLURM_TASK_PID", "4711"}}), 4712));  // the script starts it
  CHECK_FALSE(ddp::launcher::is_task_of_slurm(place({}), 4711));
}

TEST_CASE("platforms: mpirun within an allocation of Slurm counts, and not the step of its daemons", "[ddprun][unit]") {
  const Variables daemons = {
      {"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NODEID", "0"},         {"SLURM_STEP_NODELIST", "n[2-3]"},
      {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"MASTER_ADDR", "n1"}};
  NodeOptions options;
  CHECK(line_of(fill_from_platform(options, place(daemons))) ==
        "Open MPI and MASTER_ADDR: --nnodes 3 --node-rank 1 --master-addr n1");
}

TEST_CASE("print environment: says what would be used, and who says so", "[ddprun][unit]") {
  const std::string page = environment_page({.rdzv_id = "mine"}, std::nullopt, place(recorded("dstack")));
  CHECK_THAT(page, Catch::StartsWith("From dstack.\n"));
  CHECK_THAT(page, Catch::Contains("--node-rank       1                       dstack\n"));
  CHECK_THAT(page, Catch::Contains("--rdzv-id         mine                    the command line or PET_*\n"));
  CHECK_THAT(page, Catch::Contains("--nproc-per-node  4                       dstack\n"));
  CHECK_THAT(page, Catch::Contains("SkyPilot, dstack, SageMaker"));
  CHECK_THAT(environment_page({}, std::nullopt, place({})),
             Catch::StartsWith("No platform says anything that counts here.\n"));
  CHECK_THAT(environment_page({}, std::nullopt, place(recorded("pbs_script"))),
             Catch::StartsWith("ddprun would refuse to start: this job of PBS has 3 nodes"));
}
