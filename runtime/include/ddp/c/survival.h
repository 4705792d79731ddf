/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Survival of a process whose groups are another library's, such as PyTorch's Gloo.
 */
#ifndef DDP_C_SURVIVAL_H
#define DDP_C_SURVIVAL_H

#include "ddp/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup survival Survival: a process that stays in its job when others fail
 *
 * For programs whose groups are not libddp's, under `ddprun --on-failure replace`. Those of libddp call
 * ddp_session_stay() and ddp_session_rejoin() instead. The order of calls:
 *
 *     ddp_stay(1, &stays);
 *     do {
 *       ddp_round_connections("", 1, &ends);  // from here on a wait for a dead process ends when ddprun says so
 *       ...                                   // forms groups, trains; an operation fails
 *       ddp_round_await_end(-1, &is_over);    // has ddprun ended the round?
 *       ...                                   // leaves the groups, closes connections to the store
 *       ddp_round_await_next(why, &next);     // waits for the other processes
 *     } while (...);
 *     ddp_stay(0, &stays);
 * @{
 */

/** The place of a process in a round of its job: what the variables RANK, WORLD_SIZE and so on say of its first. */
typedef struct ddp_round {
  size_t size;              /**< sizeof(ddp_round), set by the caller; 0 means its layout in 0.1.0 */
  int32_t round;            /**< number of the round, from 1 */
  int32_t rank;             /**< RANK */
  int32_t world_size;       /**< WORLD_SIZE */
  int32_t local_rank;       /**< place among the processes of its node, from 0 */
  int32_t local_world_size; /**< LOCAL_WORLD_SIZE */
  int32_t node_rank;        /**< GROUP_RANK */
  int32_t node_count;       /**< GROUP_WORLD_SIZE */
  int32_t restart_count;    /**< TORCHELASTIC_RESTART_COUNT */
  int32_t master_port;      /**< MASTER_PORT: the store of the round is there, and has nothing in it */
  char master_addr[260];    /**< MASTER_ADDR */
} ddp_round;

/** Says that this process stays in its job when others fail: it then leaves its groups and waits for the next round,
 * instead of ending. `stays` 0 takes it back, before the program ends or does what it cannot do again. `*will` gets 1
 * if ddprun keeps survivors, else 0: then nothing changes, and the other functions here are not to be called. */
DDP_API ddp_status ddp_stay(int32_t stays, int32_t* will);
/** Waits until ddprun has ended the round that this process is in, at most for timeout_ms; below 0, for as long as
 * ddprun may need to notice that a process or a node is lost. `*is_over` gets 1 if it has. Any thread may call. */
DDP_API ddp_status ddp_round_await_end(int64_t timeout_ms, int32_t* is_over);
/** Says that this process has left its groups, and blocks until the next round begins, in which it has the place
 * `*next`. `why` says in errors what made it leave. Errors: DDP_TIMEOUT if no worker has failed as far as ddprun knows;
 * DDP_ABORTED if ddprun ends the job. */
DDP_API ddp_status ddp_round_await_next(const char* why, ddp_round* next);
/** Says which TCP connections of this process ddprun's agent ends when it ends the round, so that a thread that waits
 * for a dead process gets an error. `sockets` are their inodes, separated by commas; with are_others 1 all connections
 * but these end. A later call replaces what the one before has said. `*ends_them` gets 1 if the agent may do so here,
 * and 0 if the system forbids it (pidfd_getfd, which Docker's default seccomp profile does not allow): then the process
 * does it itself, when ddp_round_await_end() says so. */
DDP_API ddp_status ddp_round_connections(const char* sockets, int32_t are_others, int32_t* ends_them);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
