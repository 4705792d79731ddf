/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Kept memory: a worker's tensors outlive its process, and a restarted worker goes on with them.
 */
#ifndef DDP_C_KEEP_H
#define DDP_C_KEEP_H

#include "ddp/c/base.h"
#include "ddp/c/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup keep Kept memory: restarts that lose no step
 *
 * A worker under `ddprun --keep-memory` has its parameters and its optimizer's state in memory that ddprun holds. When
 * the job is restarted after a failure, the new processes find them there. A program marks three places of each step:
 *
 *     ddp_kept_done(kept, &step);            // the start
 *     while (step < steps) {
 *       forward(); backward(); all_reduce();
 *       int32_t write;
 *       ddp_kept_begun(kept, &write);        // before the first write to the memory
 *       if (write) update();
 *       ddp_kept_updated(kept);              // after the last
 *       log_and_validate();                  // belongs to the step
 *       ddp_kept_done(kept, &step);
 *     }
 *
 * Whenever processes are killed, all ranks go on from the same step, with the tensors that an undisturbed run has. For
 * this the training must be data parallel: after an update all ranks have equal tensors, and no rank begins an update
 * before all ranks have contributed their gradients.
 *
 * Tensors that differ between ranks, such as the shards of an optimizer's state, lie at the beginning of the memory,
 * and ddp_keep_options.own_bytes says how many bytes they have. No other rank can replace them. With `ddprun
 * --keep-memory=shadow` each rank keeps a copy of its own, and all ranks go back to the step before where one was
 * killed within its update. Without, the job then starts from its checkpoint.
 * @{
 */

/** Memory that is kept. */
typedef struct ddp_kept ddp_kept;

/** What to keep besides the memory itself. All zeros mean: nothing. */
typedef struct ddp_keep_options {
  size_t size; /**< sizeof(ddp_keep_options); 0 means its layout in 0.1.0 */
  /** Memory of this rank that the next step depends on, such as its place in the data and its random generators. It is
   * copied at each mark, and back in a process that goes on. The buffers must stay as long as the ddp_kept, and all
   * ranks give the same number of bytes. */
  const ddp_buffer* record;
  size_t record_count; /**< number of buffers */
  uint64_t layout;     /**< any number; memory that was kept with another one is not used */
  /** The first bytes of the memory that are this rank's own: no other rank has them. Another number on each rank is
   * allowed, and so is 0. The rest of the memory is equal on all ranks after an update, and as large on each. */
  size_t own_bytes;
  uint64_t own_layout; /**< as layout, for the rank's own bytes; ranks may give different numbers */
} ddp_keep_options;
/** Initial value of a ddp_keep_options. */
#define DDP_KEEP_OPTIONS_INIT \
  { sizeof(ddp_keep_options), NULL, 0, 0, 0, 0 }

/** Gives `bytes` of memory that outlives this process, aligned to a page. If the processes before this one left it in a
 * state to go on from, *found becomes 1, and the memory and the record hold that state; else *found becomes 0, the
 * memory is zeroed, and the caller fills it before the first ddp_kept_done(). Every rank of the session calls it, and
 * all find the same. Where a node was lost, its ranks get memory and record of a rank of another node; *found becomes 2
 * there, since what the record had of such a rank alone, such as its random numbers, is gone.
 *
 * Without ddprun, or without its option --keep-memory, the memory is ordinary and ends with the process; all else is
 * the same. name has letters, digits, dots, dashes and underscores; a worker keeps at most 16. options may be NULL.
 * DDP_SYSTEM if ddprun refuses, for example since the memory does not fit into the job's control group. */
DDP_API ddp_status ddp_keep(ddp_session* session, const char* name, size_t bytes, const ddp_keep_options* options,
                            ddp_kept** kept, void** memory, int32_t* found);
/** Copies the first `bytes` of the memory that an earlier process of this worker has kept under a name, before
 * ddp_keep(): it may be half updated, but has what was written before the start was marked and never again, such as a
 * table of what is where. *read becomes the number of bytes that were there: 0 without ddprun, without --keep-memory,
 * or in the worker's first process. Needs no session. */
DDP_API ddp_status ddp_kept_peek(const char* name, void* buffer, size_t bytes, size_t* read);
/** Unmaps the memory; the launcher keeps it. NULL is allowed. */
DDP_API void ddp_kept_destroy(ddp_kept* kept);
/** Marks that an update of the memory begins. If the memory has this update already, from the process before, *write
 * becomes 0, and the record becomes what it was here; then the caller must not write. Else *write becomes 1. */
DDP_API ddp_status ddp_kept_begun(ddp_kept* kept, int32_t* write);
/** Marks that the update is complete. */
DDP_API ddp_status ddp_kept_updated(ddp_kept* kept);
/** Marks that the step is over: the next one starts here. The first call marks the start of the training. *steps
 * becomes the number of steps that are done since the memory was made. */
DDP_API ddp_status ddp_kept_done(ddp_kept* kept, int64_t* steps);
/** Returns a sentence that says what was found, for a log. Never NULL; valid as long as kept. */
DDP_API const char* ddp_kept_recovered(const ddp_kept* kept);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
