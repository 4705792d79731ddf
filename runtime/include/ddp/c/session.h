/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sessions: how a process joins its job, and what it then knows about itself.
 */
#ifndef DDP_C_SESSION_H
#define DDP_C_SESSION_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"
#include "ddp/c/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup session Session: this process's membership in a job
 * @{
 */

/** How to join a job. All zeros mean: as the environment says. */
typedef struct ddp_session_options {
  size_t size; /**< sizeof(ddp_session_options); 0 means its layout in 0.1.0 */
  /** Backends that carry the collectives: "ddp" or "gloo" for the CPU's memory, "nccl" for the memory of
   * CUDA devices, "cpu:ddp,cuda:nccl" for both, or NAME for a plug-in libddp_NAME.so. NULL means "ddp". */
  const char* backend;
  int64_t init_timeout_ms; /**< for finding all other ranks; 0 means 60 s */
  int64_t timeout_ms;      /**< for each collective, from issue to end; 0 means 30 min */
  /** Place where the ranks meet; NULL means "env://". The table at ddp_session_init() lists the others. */
  const char* init_method;
  int32_t rank;             /**< used only if world_size is not 0 */
  int32_t world_size;       /**< 0: as init_method or the environment says */
  int32_t local_rank;       /**< used only if local_world_size is not 0 */
  int32_t local_world_size; /**< 0: as the environment says; 1 if it does not */
  /** GPU of this process, such as "cuda:0", for a session with a backend for CUDA memory. It counts the devices that
   * CUDA_VISIBLE_DEVICES leaves. NULL means the one with the number of the local rank. */
  const char* device;
  /** Store at which the ranks meet, instead of a place that init_method names; NULL: none. It needs rank and
   * world_size. The session makes connections of its own, so the store may go before it. The store of a session of one
   * rank is refused. */
  ddp_store* store;
  /** Name of the session: ranks that give the same name at the same place meet, whatever other sessions they have.
   * NULL: the first sessions of all processes meet, then their second ones, and so on: all must make the same ones.
   */
  const char* name;
} ddp_session_options;
/** Initial value of a ddp_session_options: its size, and the default of each field. */
#define DDP_SESSION_OPTIONS_INIT \
  { sizeof(ddp_session_options), NULL, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL }

/** Joins a job and connects to all its ranks. They meet where init_method says:
 *
 * | init_method       | where |
 * |-------------------|-------|
 * | `env://`          | as the environment says |
 * | `tcp://HOST:PORT` | at a store that rank 0 hosts there, or the launcher if the address is its own; IPv6: `[fd00::1]` |
 * | `file:///PATH`    | in a file that all ranks can open, a new one for each run; it is removed when all have left |
 *
 * Rank and world size come from the options, else from the URL (`tcp://HOST:PORT?rank=0&world_size=2`), else from the
 * environment, as one of these has set it:
 *
 * | set by | variables that are read |
 * |--------|-------------------------|
 * | ddprun, torchrun, a script | RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT |
 * | Slurm's srun | SLURM_PROCID, SLURM_LOCALID and the step's other variables; ranks meet on its first node |
 * | Open MPI's mpirun | OMPI_COMM_WORLD_RANK, ...; on several nodes set MASTER_ADDR and MASTER_PORT as well |
 * | mpiexec of MPICH or Intel MPI | PMI_RANK, PMI_SIZE, ...; on several nodes set MASTER_ADDR and MASTER_PORT as well |
 *
 * The first row whose variables are set counts. If none are, the process is a world of its own. Where the launcher
 * hosts no store (TORCHELASTIC_USE_AGENT_STORE is not "True", or MASTER_PORT is no longer what ddprun set), rank 0
 * does.
 *
 * Ranks connect to each other at the address of the network interface that GLOO_SOCKET_IFNAME or DDP_SOCKET_IFNAME
 * names, else at an address that the others can reach.
 *
 * options may be NULL. The call installs the handlers of ddp_failure_handlers_install(), and with a
 * backend other than "ddp" one of SIGPIPE that does nothing, if SIGPIPE has its default disposition. Errors:
 * DDP_INVALID_ARGUMENT names the variable or the part of the URL that is missing or wrong; DDP_TIMEOUT names the ranks
 * that did not come. Source: torch.distributed.init_process_group. */
DDP_API ddp_status ddp_session_init(const ddp_session_options* options, ddp_session** out);
/** Ends the session: waits for operations in flight and leaves the groups. NULL is allowed. */
DDP_API void ddp_session_destroy(ddp_session* session);
/** Returns the group of all ranks. The session owns it, and it is valid until the session is destroyed. Source:
 * torch.distributed.group.WORLD. */
DDP_API ddp_group* ddp_session_world(ddp_session* session);
/** Gives a key-value store that all ranks of the job share, or this process alone in a world of one. Keys have a prefix
 * of this session and restart, so they never collide with those of libddp, of other programs or of earlier restarts.
 * The first call connects, within init_timeout_ms; calls on the store without a timeout of their own have the session's
 * timeout. The session owns the store: do not destroy it. */
DDP_API ddp_status ddp_session_store(ddp_session* session, ddp_store** out);
/** Returns this process's rank among the ranks of its node, starting at 0 (LOCAL_RANK). */
DDP_API int32_t ddp_session_local_rank(const ddp_session* session);
/** Returns the number of ranks of the job on this node (LOCAL_WORLD_SIZE). */
DDP_API int32_t ddp_session_local_world_size(const ddp_session* session);
/** Returns how many times the job was restarted before this process was started. */
DDP_API int32_t ddp_session_restart_count(const ddp_session* session);
/** Returns 1 if a session may have this backend ("gloo", "nccl", or a plug-in's name): its module opens, or NCCL's
 * library and the CUDA driver do, and this process may use a GPU. What was opened stays open, so ddp_spawn() comes
 * before asking for "nccl". Else 0, and ddp_error_last() says why. Source: torch.distributed.is_backend_available and
 * is_nccl_available. */
DDP_API int32_t ddp_backend_is_available(const char* backend);
/** Returns this process's rank in its job, with or without a session, as loggers need it. It is the rank of the first
 * session, else what the environment says (RANK, or what srun or mpirun set); 0 if nothing valid is set. Any thread may
 * call. */
DDP_API int32_t ddp_job_rank(void);
/** Says that this process stays in its job when others fail, under `ddprun --on-failure replace` or `shrink`: it then
 * calls ddp_session_rejoin() when a collective fails with DDP_PEER_LOST, or with DDP_ABORTED after that, instead of
 * ending. From then on the failure of any rank fails the operations of all groups of this session, and under `shrink` a
 * node that comes or leaves, too. `stays` 0 takes it back, before the program ends or does what it cannot do again.
 * `*will` gets 1 if ddprun keeps survivors, else 0: then nothing changes, and a failure ends the process as it would
 * have. The session must have joined as ddprun's variables say, without a name of its own, and have no group but the
 * world. */
DDP_API ddp_status ddp_session_stay(ddp_session* session, int32_t stays, int32_t* will);
/** Leaves all groups of the session, waits until ddprun has started other processes for those that failed, and joins
 * them in a new world: ddp_session_world(), its size, the rank and the restart count are others then, and all groups
 * that the session had are gone, with whatever was made of them: free optimizers and reducers before. Blocks for as
 * long as the job needs to come together again. Errors: DDP_TIMEOUT if no worker has failed as far as ddprun knows;
 * DDP_ABORTED if ddprun ends the job. */
DDP_API ddp_status ddp_session_rejoin(ddp_session* session);
/** Shows the step that this process has reached to its launcher: `ddprun ps` lists it. It takes less than a
 * microsecond, since it only writes to memory that the two share; the first call asks the launcher for that memory.
 * Without ddprun it does nothing. step counts as the program likes, from 0. Any thread may call. */
DDP_API void ddp_progress(int64_t step);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
