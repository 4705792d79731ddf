// SPDX-License-Identifier: BSD-3-Clause
// Who started this process, if it was neither ddprun nor torchrun, and what that says of the job:
//
//   Open MPI's mpirun   OMPI_COMM_WORLD_RANK, ...; PMIX_SERVER_TMPDIR is a folder of the job's own
//   Slurm's srun        SLURM_PROCID in a step; the step's nodes are known, so is where rank 0 is
//   an MPI's mpiexec    PMI_RANK, ... (MPICH, Intel MPI and others that use Hydra)
//
// An mpirun inside a step of Slurm passes on the variables of that step, which mean the mpirun's own tasks: so the
// MPI's word counts more.
#pragma once

#include <optional>

#include "runtime/base/environment.hpp"
#include "runtime/session/rendezvous_point.hpp"

namespace ddp::runtime {

struct ProcessManager {
  enum class Kind { OpenMpi, Slurm, Pmi };
  Kind kind = Kind::Slurm;
  Setting rank;
  Setting world_size;
  std::optional<Setting> local_rank;
  std::optional<Setting> local_world_size;
  std::optional<Setting> restart_count;
};

std::optional<ProcessManager> find_process_manager(const Environment& environment);

// Where its ranks meet: MASTER_ADDR and MASTER_PORT as far as they are set, else what the process_manager's words allow
// to find. Throws rendezvous::Error saying what to set.
RendezvousPoint rendezvous_point(const ProcessManager& process_manager, const Environment& environment);

}  // namespace ddp::runtime
