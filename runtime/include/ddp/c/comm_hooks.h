/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Communication hooks: how a reducer's gradients travel, if not as the plain average.
 */
#ifndef DDP_C_COMM_HOOKS_H
#define DDP_C_COMM_HOOKS_H

#include "ddp/c/base.h"
#include "ddp/c/reducer.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup comm_hooks Communication hooks
 * @{
 */

/** Place of one parameter's gradient in a bucket. Source: GradBucket.gradients() and .parameters(). */
typedef struct ddp_grad_slice {
  size_t parameter;     /**< number of the parameter */
  size_t offset;        /**< where its first element is in the bucket, in elements */
  size_t count;         /**< in elements */
  const int64_t* shape; /**< rank entries, whose product is count */
  size_t rank;          /**< number of dimensions */
  void* value;          /**< the parameter itself, count elements */
} ddp_grad_slice;

/** Gradients that travel together. Source: torch.distributed.GradBucket. */
typedef struct ddp_grad_bucket {
  size_t index;                 /**< 0 for the first to be reduced */
  int32_t is_last;              /**< 1: no bucket follows */
  ddp_buffer buffer;            /**< all of its gradients, without gaps */
  const ddp_grad_slice* slices; /**< in the order in which they lie in the buffer */
  size_t slice_count;           /**< number of slices */
} ddp_grad_bucket;

/** Functions that replace the plain average. The thread that calls the reducer calls them for the same buckets in the
 * same order on every rank; they may issue operations on the reducer's group or on another one. If one of them returns
 * anything but DDP_OK, the reducer's group is aborted, so that no rank waits for this one, and the reducer's call and
 * every later one return that status. Source: the hooks of DistributedDataParallel.register_comm_hook; start is such a
 * hook, and advance its continuations. */
typedef struct ddp_comm_hook {
  void* context; /**< passed to all of them unchanged; must stay until the reducer is destroyed */
  /** Starts a bucket's exchange. The bucket is full of this rank's own gradients, not divided: dividing is the hook's
   * task. Called in backward, in the order of the buckets: issue an asynchronous operation, do not wait for it. */
  ddp_status (*start)(void* context, const ddp_grad_bucket* bucket);
  /** Waits for what was issued; then the bucket holds the average, or the function issues another stage and sets *more
   * to 1 (it is 0 before). Called in ddp_reducer_synchronize(), for all buckets in order, again and again for those
   * that are not done. */
  ddp_status (*advance)(void* context, const ddp_grad_bucket* bucket, int32_t* more);
  /** Returns why one of them failed, in one line that is valid until the next call. May be NULL: ddp_error_last() is
   * used then. */
  const char* (*why)(void* context);
} ddp_comm_hook;
/** Registers a hook, once, before the first backward, on every rank; the struct is copied. Anything else is
 * DDP_INVALID_ARGUMENT, and the reducer remains usable. Source: DistributedDataParallel.register_comm_hook. */
DDP_API ddp_status ddp_reducer_register_comm_hook(ddp_reducer* reducer, const ddp_comm_hook* hook);

/** Communication hooks that libddp has. Source: torch.distributed.algorithms.ddp_comm_hooks.default_hooks. */
typedef enum ddp_builtin_comm_hook {
  DDP_ALLREDUCE_HOOK = 1,     /**< the average, as without a hook */
  DDP_FP16_COMPRESS_HOOK = 2, /**< the average of gradients rounded to DDP_FLOAT16; 65520 and more become infinite */
  DDP_BF16_COMPRESS_HOOK = 3  /**< the average of gradients rounded to DDP_BFLOAT16, which has the range of a float */
} ddp_builtin_comm_hook;

/** Registers a ddp_builtin_comm_hook, under the rules of ddp_reducer_register_comm_hook(). The hooks of 16 bits are for
 * gradients in CPU memory; for gradients on a GPU they are DDP_INVALID_ARGUMENT. They add in 32 bits and round the sum
 * once. Source: DistributedDataParallel._register_builtin_comm_hook. */
DDP_API ddp_status ddp_reducer_register_builtin_comm_hook(ddp_reducer* reducer, int32_t hook);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
