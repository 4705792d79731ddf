/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Spawn: a program starts the ranks of a job itself.
 */
#ifndef DDP_C_SPAWN_H
#define DDP_C_SPAWN_H

#include "ddp/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup spawn Spawn: processes that a program starts itself
 *
 * The ranks of a job on this machine, without ddprun: each is a copy of the calling process (fork) that runs one
 * function. Source: torch.multiprocessing.spawn and start_processes.
 *
 * @{
 */

/** The processes that one ddp_spawn() started. */
typedef struct ddp_spawned ddp_spawned;

/** Function that each process runs. Returns DDP_OK, or its failure after writing the reason, NUL-terminated, into the
 * why_size bytes at why; without a reason ddp_error_last() is used. context is what ddp_spawn() was given, in the
 * process's own copy of the memory. */
typedef ddp_status (*ddp_spawn_function)(int32_t rank, void* context, char* why, size_t why_size);

/** How processes end. All zeros mean: ddp_spawn_destroy() waits for them. */
typedef struct ddp_spawn_options {
  size_t size;      /**< sizeof(ddp_spawn_options); 0 means its layout in 0.1.0 */
  int32_t daemon;   /**< 1: ddp_spawn_destroy() stops the processes that still run; 0: it waits for them */
  int64_t grace_ms; /**< from SIGTERM to SIGKILL for those that are stopped; 0 means 30 s */
} ddp_spawn_options;
/** Initial value of a ddp_spawn_options: its size, and the default of each field. */
#define DDP_SPAWN_OPTIONS_INIT \
  { sizeof(ddp_spawn_options), 0, 0 }

/** The process that failed first, and how it ended. */
typedef struct ddp_spawn_failure {
  int32_t rank;      /**< the rank that failed first */
  int32_t exit_code; /**< -1: it has none */
  int32_t signal;    /**< the signal that killed it; 0: none */
} ddp_spawn_failure;

/** Starts nprocs processes that each run the function. They have RANK, LOCAL_RANK and WORLD_SIZE, a store of this
 * process at MASTER_ADDR and MASTER_PORT, and an empty stdin. If the program has set those two itself, they stay, and
 * rank 0 hosts the store there. Returns once they run. options may be NULL.
 *
 * A process ends when its function returns; it runs no exit handlers, since those are its parent's. The kernel kills
 * the processes if the calling thread ends before them. DDP_INVALID_ARGUMENT if this process cannot be copied because
 * it has other threads, has a session, or has used CUDA. */
DDP_API ddp_status ddp_spawn(ddp_spawn_function function, void* context, int32_t nprocs,
                             const ddp_spawn_options* options, ddp_spawned** out);
/** Waits until all processes have ended. A process fails if its function fails, if a signal kills it, or if it exits
 * with a code other than 0; then the others' operations fail as under ddprun, and they are stopped. The status is the
 * function's, else DDP_SYSTEM; the text names the rank and the reason; *failure, which may be NULL, is filled in. */
DDP_API ddp_status ddp_spawn_join(ddp_spawned* spawned, ddp_spawn_failure* failure);
/** Waits as ddp_spawn_join() does, for timeout_ms at most; 0 only checks. *ended becomes 1 if all have ended, else 0.
 */
DDP_API ddp_status ddp_spawn_join_for(ddp_spawned* spawned, int64_t timeout_ms, int32_t* ended,
                                      ddp_spawn_failure* failure);
/** Returns the process id of a rank; -1 if there is no such rank. */
DDP_API int64_t ddp_spawn_pid(const ddp_spawned* spawned, int32_t rank);
/** Waits for the processes that are left, or stops them if ddp_spawn_options::daemon is 1. NULL is allowed. */
DDP_API void ddp_spawn_destroy(ddp_spawned* spawned);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
