// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/platform.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "launcher/platform/rows.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {
namespace {

struct Row {
  const char* name;
  std::optional<PlatformJob> (*find)(const Surroundings&);
};

// Services come first: they run on Kubernetes or Slurm and know the job better. An mpirun within an allocation of Slurm
// starts its daemons as a step over the *other* nodes, so MPI's variables count before those of that step. What pods
// say comes last, since RANK and WORLD_SIZE may mean anything.
constexpr Row kTable[] = {
    {"SkyPilot", find_skypilot},
    {"dstack", find_dstack},
    {"SageMaker", find_sagemaker},
    {"Lepton", find_lepton},
    {"AWS Batch", find_aws_batch},
    {"Open MPI", find_open_mpi},
    {"PMI (MPICH, Intel MPI, PALS)", find_pmi},
    {"Slurm", find_slurm},
    {"LSF", find_lsf},
    {"PBS", find_pbs},
    {"pods (PyTorchJob, Volcano, PAI-DLC)", find_pod_ranks},
    {"Kubernetes, indexed job", find_indexed_job},
};

}  // namespace

Surroundings own_surroundings() {
  return {.variable =
              [](const char* name) {
                const char* value = getenv(name);
                return std::string(value ? value : "");
              },
          .file =
              [](const std::string& path) {
                std::ifstream file(path);
                return std::string(std::istreambuf_iterator<char>(file), {});
              },
          .host = rendezvous::host_name(),
          .agree_by_starter = agree_by_starter};
}

bool is_within_worker(const Surroundings& here) { return !here.variable(rendezvous::contract::kRunId).empty(); }

std::optional<PlatformJob> find_platform(const Surroundings& here) {
  if (is_within_worker(here)) return std::nullopt;
  for (const Row& row : kTable) {
    if (auto job = row.find(here)) return job;
  }
  return std::nullopt;
}

std::vector<std::string> platform_names() {
  std::vector<std::string> names;
  for (const Row& row : kTable) names.emplace_back(row.name);
  return names;
}

namespace {

void forget_starter() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view variable = *entry;
    for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_", "HYDRA_"}) {
      if (variable.starts_with(prefix)) names.emplace_back(variable.substr(0, variable.find('=')));
    }
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

}  // namespace

Agreement agree_by_starter(rendezvous::KeyValueStore store, int node_rank) {
  Agreement agreement;
  const std::string own = node_rank == 0 ? digits_of(rendezvous::Secret::random()) : "";
  agreement.point = rendezvous::meeting_point(store, node_rank, own);
  forget_starter();
  agreement.secret = rendezvous::secret_of(agreement.point.note);
  if (agreement.secret) return agreement;
  throw rendezvous::Error(rendezvous::ErrorCode::Mismatch, "node rank 0 runs another version of ddprun");
}

}  // namespace ddp::launcher
