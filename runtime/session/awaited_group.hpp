// SPDX-License-Identifier: BSD-3-Clause
// The group of all ranks of a job whose memory is kept (`ddprun --keep-memory`), in which a new process may take the
// place of a worker that was killed, so that the others only wait a little longer (collectives/host/successors). A job
// has one: the world of the first session.
#pragma once

#include "collectives/backend_names.hpp"
#include "ddp/backend.h"
#include "runtime/base/environment.hpp"
#include "runtime/session/identity/worker_info.hpp"

namespace ddp::runtime {

enum class Succession {
  None,        // a group as any other
  Awaits,      // ranks that die may have successors
  IsSuccessor  // this process is one
};

// Returns what a session of these workers is to do, if it is the first of its process: the conditions that all ranks
// know alike.
Succession succession_of(const WorkerInfo& info, const collectives::BackendNames& backends, DebugLevel debug,
                         const Environment& environment);

// Makes the group as the table's group_create does. A successor gets the group's memory from its agent. Throws nothing.
ddp_backend_status open_awaited_group(Succession succession, const ddp_backend_group_config& config,
                                      ddp_backend_group** out, ddp_backend_error* error);

// Has this process leave the group when it exits without having destroyed it; null: no group any more.
void leave_at_exit(ddp_backend_group* group);

// Tells the agent, once, that no process of this round can have a successor, for example since the job has a second
// group, which a new process could not enter. Throws nothing: a successor that cannot take its place ends with an
// error, and the job is restarted.
void forgo_successors();

}  // namespace ddp::runtime
