/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Groups: which ranks talk to each other.
 */
#ifndef DDP_C_GROUP_H
#define DDP_C_GROUP_H

#include "ddp/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** This process's membership in a job. Made by ddp_session_init(), ended by ddp_session_destroy(). */
typedef struct ddp_session ddp_session;
/** Ranks that talk to each other. Owned by its session; single-use after an error. */
typedef struct ddp_group ddp_group;

/**
 * @defgroup groups Groups of ranks
 *
 * The session's world has all ranks. Further groups have some of them, each with connections of its own: an operation
 * that waits in one group does not delay another group. A group that has failed stays failed, but a new one of the
 * remaining ranks can be made as long as the store lives. Where the launcher reports which ranks died, every group that
 * contains one of them fails at once, even on ranks that wait for other ranks; groups without them go on. Source:
 * torch.distributed.new_group with use_local_synchronization=True, and MPI_Comm_split.
 *
 * @{
 */

/** Properties of a new group. All zeros mean: those of the session, or for ddp_group_split() of the parent. */
typedef struct ddp_group_options {
  size_t size;         /**< sizeof(ddp_group_options); 0 means its layout in 0.1.0 */
  const char* name;    /**< unique in the job, without a slash; NULL: made from the members. Any, for a split */
  const char* backend; /**< NULL: as its session or parent */
  int64_t timeout_ms;  /**< for each collective; 0: as its session or parent */
} ddp_group_options;
/** Initial value of a ddp_group_options: its size, and the default of each field. */
#define DDP_GROUP_OPTIONS_INIT \
  { sizeof(ddp_group_options), NULL, NULL, 0 }

/** Makes a group of these ranks of the job, or of all if ranks is NULL. They get their ranks in the group in ascending
 * order, whatever the order of the array. Only members have to call it, in the same order if they make several groups
 * of the same members; other processes get NULL at once. Returns when all members are connected. options may be NULL.
 * Any thread may call; the session owns the group.
 *
 * Errors: DDP_TIMEOUT, after the session's init_timeout_ms, names the ranks that did not come; DDP_PEER_LOST names the
 * one that died meanwhile; DDP_MISMATCH if members give the same name and different ranks; DDP_INVALID_ARGUMENT if a
 * rank is not one of the job's or is given twice. Source: torch.distributed.new_group. */
DDP_API ddp_status ddp_group_new(ddp_session* session, const int32_t* ranks, size_t count,
                                 const ddp_group_options* options, ddp_group** out);

/** Color for ddp_group_split() that puts this rank into none of the groups. */
#define DDP_NO_COLOR (-1)

/** Splits a group: the ranks that give the same color become a new group, in the order of their keys, then of their
 * ranks in the parent. Any negative color counts as DDP_NO_COLOR and gives NULL. options may be NULL. Collective over
 * the parent, one thread at a time; fails as the parent's collectives and ddp_group_new() do. Source: MPI_Comm_split.
 */
DDP_API ddp_status ddp_group_split(ddp_group* parent, int32_t color, int32_t key, const ddp_group_options* options,
                                   ddp_group** out);

/** Leaves a group: waits for this rank's operations in flight and closes its connections. Each member leaves when it
 * likes; operations of the others that need this rank then fail. Destroy reducers of the group first. The world is
 * refused with DDP_INVALID_ARGUMENT: it ends with its session, as do all groups that are left then. NULL is allowed.
 * Source: torch.distributed.destroy_process_group. */
DDP_API ddp_status ddp_group_destroy(ddp_group* group);

/** Returns this process's rank in the group, from 0 to size - 1; -1 if group is NULL. Any thread may call. Source:
 * torch.distributed.get_rank. */
DDP_API int32_t ddp_group_rank(const ddp_group* group);
/** Returns the number of ranks in the group, at least 1; -1 if group is NULL. Any thread may call. Source:
 * torch.distributed.get_world_size. */
DDP_API int32_t ddp_group_size(const ddp_group* group);
/** Returns the group's name in messages, such as "world"; "" if group is NULL. Valid as long as the group. */
DDP_API const char* ddp_group_name(const ddp_group* group);
/** Returns the name of the group's backend, such as "ddp"; "" if group is NULL. Valid as long as the group. Source:
 * torch.distributed.get_backend. */
DDP_API const char* ddp_group_backend(const ddp_group* group);
/** Returns the rank in the job of the group's rank `rank`; -1 if there is none. Source:
 * torch.distributed.get_global_rank. */
DDP_API int32_t ddp_group_global_rank(const ddp_group* group, int32_t rank);
/** Returns the rank in the group of the job's rank `global_rank`; -1 if it is not a member. Source:
 * torch.distributed.get_group_rank. */
DDP_API int32_t ddp_group_group_rank(const ddp_group* group, int32_t global_rank);

/** Returns the world of this process's first session that has not ended; NULL if there is none. Any thread may call.
 * Source: torch.distributed.group.WORLD. */
DDP_API ddp_group* ddp_group_default(void);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
