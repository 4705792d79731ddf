// SPDX-License-Identifier: BSD-3-Clause
// Services that start one process on each node of a job.
#include <algorithm>

#include "launcher/platform/rows.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

// https://docs.skypilot.co, "Environment variables". Before SKYPILOT_NUM_NODES came, the addresses told the number.
std::optional<PlatformJob> find_skypilot(const Surroundings& here) {
  const auto addresses = words_of(here.variable("SKYPILOT_NODE_IPS"), "\n\r ");
  const auto rank = number_in(here, "SKYPILOT_NODE_RANK");
  if (!rank || addresses.size() < 2) return std::nullopt;
  const int nodes = number_in(here, "SKYPILOT_NUM_NODES", 1).value_or(static_cast<int>(addresses.size()));
  if (nodes != static_cast<int>(addresses.size())) {
    refuse_contradiction(here, "SkyPilot", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_IPS");
  }
  if (*rank >= nodes) refuse_contradiction(here, "SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS");
  PlatformJob job{.platform = "SkyPilot",
                  .nodes = nodes,
                  .node_rank = rank,
                  .host = addresses.front(),
                  .workers = gpus_in(here, "SKYPILOT_NUM_GPUS_PER_NODE")};
  take_id(job, here.variable("SKYPILOT_TASK_ID"));
  return job;
}

// https://dstack.ai/docs, "Distributed tasks".
std::optional<PlatformJob> find_dstack(const Surroundings& here) {
  auto job = job_of_nodes(here, "dstack", "DSTACK_NODES_NUM", "DSTACK_NODE_RANK");
  if (!job) return job;
  job->host = here.variable("DSTACK_MASTER_NODE_IP");
  job->workers = gpus_in(here, "DSTACK_GPUS_PER_NODE");
  take_id(*job, here.variable("DSTACK_RUN_ID"));
  return job;
}

// https://github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md. The list of hosts is JSON, and the same
// on all of them.
std::optional<PlatformJob> find_sagemaker(const Surroundings& here) {
  const auto hosts = words_of(here.variable("SM_HOSTS"), "[]\", ");
  const std::string own = here.variable("SM_CURRENT_HOST");
  if (hosts.size() < 2 || own.empty()) return std::nullopt;
  const auto place = std::find(hosts.begin(), hosts.end(), own);
  if (place == hosts.end()) refuse_contradiction(here, "SageMaker", "SM_CURRENT_HOST", "SM_HOSTS");
  PlatformJob job{.platform = "SageMaker",
                  .nodes = static_cast<int>(hosts.size()),
                  .node_rank = static_cast<int>(place - hosts.begin()),
                  .host = hosts.front(),
                  .workers = gpus_in(here, "SM_NUM_GPUS")};
  take_id(job, here.variable("TRAINING_JOB_NAME"));
  return job;
}

// https://docs.nvidia.com/dgx-cloud/lepton, "Distributed training".
std::optional<PlatformJob> find_lepton(const Surroundings& here) {
  auto job = job_of_nodes(here, "Lepton", "LEPTON_JOB_TOTAL_WORKERS", "LEPTON_JOB_WORKER_INDEX");
  if (!job) return job;
  const std::string name = here.variable("LEPTON_JOB_NAME");
  const std::string prefix = here.variable("LEPTON_JOB_SERVICE_PREFIX");
  const std::string domain = here.variable("LEPTON_SUBDOMAIN");
  const std::string first = prefix.empty() ? name : prefix;
  if (!first.empty()) job->host = first + "-0" + (domain.empty() ? "" : "." + domain);
  job->workers = gpus_in(here, "LEPTON_RESOURCE_ACCELERATOR_NUM");
  take_id(*job, first);
  return job;
}

// https://docs.aws.amazon.com/batch, "Multi-node parallel jobs". The main node, which need not be number 0, is not told
// its own address.
std::optional<PlatformJob> find_aws_batch(const Surroundings& here) {
  auto job = job_of_nodes(here, "AWS Batch", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX");
  if (!job) return job;
  const int main = number_in(here, "AWS_BATCH_JOB_MAIN_NODE_INDEX").value_or(0);
  if (main >= *job->nodes) {
    refuse_contradiction(here, "AWS Batch", "AWS_BATCH_JOB_MAIN_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES");
  }
  job->node_rank = (*job->node_rank - main + *job->nodes) % *job->nodes;
  job->host = *job->node_rank == 0 ? here.host : here.variable("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  const std::string id = here.variable("AWS_BATCH_JOB_ID");  // "JOB#NODE"
  take_id(*job, id.substr(0, id.find('#')));
  return job;
}

// What operators of Kubernetes tell their pods. Those that set PET_ variables, such as Kubeflow's Trainer, need no row.
// Early releases of Kubeflow's PyTorchJob, Volcano's plug-in "pytorch" and Alibaba's PAI-DLC: RANK and WORLD_SIZE count
// pods. Later PyTorchJobs set WORLD_SIZE to the number of workers, and PET_NNODES too. Outside of a pod these variables
// are more likely those of somebody's script.
std::optional<PlatformJob> find_pod_ranks(const Surroundings& here) {
  const bool is_volcano = !here.variable("VC_TASK_INDEX").empty();
  const bool is_pod = is_volcano || !here.variable("KUBERNETES_SERVICE_HOST").empty();
  const bool is_worker = !here.variable("LOCAL_RANK").empty();
  const std::string host = here.variable("MASTER_ADDR");
  if (!is_pod || is_worker || host.empty() || !here.variable("PET_NNODES").empty()) return std::nullopt;
  auto job = job_of_nodes(here, is_volcano ? "Volcano" : "the pod's variables", "WORLD_SIZE", "RANK");
  if (!job) return job;
  // Some operators set MASTER_ADDR=localhost in the master's pod.
  job->host = host == "localhost" && *job->node_rank == 0 ? here.host : host;
  if (const auto port = number_in(here, "MASTER_PORT", 1)) job->ports = {static_cast<std::uint16_t>(*port)};
  job->workers = gpus_in(here, "NPROC_PER_NODE");
  return job;
}

// A job of Kubernetes that is indexed, and a child of a JobSet: nothing says how many pods there are.
std::optional<PlatformJob> find_indexed_job(const Surroundings& here) {
  const auto rank = rendezvous::parse_number<int>(here.variable("JOB_COMPLETION_INDEX"));
  if (!rank) return std::nullopt;
  PlatformJob job{.platform = "Kubernetes (JOB_COMPLETION_INDEX)", .node_rank = rank};
  if (!here.variable("MASTER_ADDR").empty()) {
    job.refusal =
        "this pod has JOB_COMPLETION_INDEX and MASTER_ADDR, so it is one of several, and nothing says of how many: set "
        "PET_NNODES to the number of pods, or give --standalone if each is a job of its own";
  }
  return job;
}

}  // namespace ddp::launcher
