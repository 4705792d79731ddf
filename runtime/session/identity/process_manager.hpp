// SPDX-License-Identifier: BSD-3-Clause
// The process manager that started this process, if it was neither ddprun nor torchrun, and what it says about the job:
//
//   Open MPI's mpirun   OMPI_COMM_WORLD_RANK, ...; PMIX_SERVER_TMPDIR is a folder of this job alone
//   Slurm's srun        SLURM_PROCID in a step; the step's nodes are known, and so is rank 0's
//   an MPI's mpiexec    PMI_RANK, ... (MPICH, Intel MPI and others that use Hydra)
//
// An mpirun inside a Slurm step passes on the variables of that step, which describe the mpirun's own tasks. So the
// MPI's variables take precedence.
#pragma once

#include <optional>

#include "runtime/base/environment.hpp"
#include "runtime/session/identity/rendezvous_point.hpp"

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

// Returns where the ranks meet: MASTER_ADDR and MASTER_PORT if they are set, else what follows from the process
// manager's variables. Throws rendezvous::Error saying what to set.
RendezvousPoint rendezvous_point(const ProcessManager& process_manager, const Environment& environment);

}  // namespace ddp::runtime
