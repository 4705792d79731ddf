// SPDX-License-Identifier: BSD-3-Clause
// MPI's mpirun and mpiexec, which start one process a slot: right for ddprun only where that is one a host.
#include "launcher/platform/rows.hpp"

namespace ddp::launcher {
namespace {

std::string too_many(const std::string& starter, int here, const std::string& one_a_host) {
  return starter + " has started " + std::to_string(here) +
         " ddprun on this host, each of which would be a job of its own. Start one on each host: " + one_a_host +
         " ddprun ...; or start a program of libddp without ddprun; or give --standalone if " + std::to_string(here) +
         " jobs are what you want";
}

}  // namespace

std::optional<PlatformJob> find_open_mpi(const Surroundings& here) {
  auto job = job_of_nodes(here, "Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (!job) return job;
  const int local = number_in(here, "OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1);
  if (local > 1) job->refusal = too_many("mpirun", local, "mpirun --map-by ppr:1:node");
  if (!here.variable("PMIX_NAMESPACE").empty()) job->exchange = rendezvous::KeyValueStore::Pmix;
  return job;
}

// MPICH and Intel MPI (Hydra), and HPE's PALS. srun --mpi=pmi2 sets PMI_RANK too, and is a matter of Slurm's row.
std::optional<PlatformJob> find_pmi(const Surroundings& here) {
  if (here.variable("PMI_RANK") == here.variable("SLURM_PROCID")) return std::nullopt;
  const bool is_pals = !here.variable("PALS_RANKID").empty();
  auto job = job_of_nodes(here, is_pals ? "PALS" : "PMI", "PMI_SIZE", "PMI_RANK");
  if (!job) return job;
  const int local = number_in(here, is_pals ? "PALS_LOCAL_SIZE" : "MPI_LOCALNRANKS", 1).value_or(1);
  if (!here.variable("PMI_FD").empty()) job->exchange = rendezvous::KeyValueStore::Pmi;
  if (local > 1) job->refusal = too_many("mpiexec", local, is_pals ? "mpiexec --ppn 1" : "mpiexec -ppn 1");
  return job;
}

}  // namespace ddp::launcher
