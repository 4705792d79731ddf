// SPDX-License-Identifier: BSD-3-Clause
// What operators of Kubernetes tell their pods. Those that set PET_ variables, such as Kubeflow's Trainer, need no row.
#include "launcher/platform/rows.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

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
