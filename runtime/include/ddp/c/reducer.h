/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The reducer: averages a model's gradients over the ranks, as PyTorch's DistributedDataParallel does; and
 * communication hooks, by which gradients travel otherwise.
 */
#ifndef DDP_C_REDUCER_H
#define DDP_C_REDUCER_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup reducer Reducer: DistributedDataParallel for C
 *
 * A reducer knows the parameters and buffers of one model and averages their gradients over the ranks of a group, in
 * buckets, while backward is still running. It is the part of PyTorch's DistributedDataParallel that PyTorch calls
 * reducer; forward, backward and the optimizer stay the program's. One training step:
 *
 *     ddp_reducer_before_forward(reducer);            // only with buffers, or in a join
 *     ... forward, backward, and for each gradient i that is complete:
 *         ddp_reducer_mark_ready(reducer, i);         // full buckets are reduced meanwhile
 *     ddp_reducer_synchronize(reducer);               // every gradient is the average now
 *
 * Its collectives are the group's: one thread at a time, the group's errors, and its timeout as their deadline. Source:
 * torch.nn.parallel.DistributedDataParallel.
 *
 * @{
 */

/** Averages the gradients of one model's parameters. Made by ddp_reducer_create(). */
typedef struct ddp_reducer ddp_reducer;

/** A tensor of the model in plain memory: a trainable parameter or a buffer. Never owns its memory. */
typedef struct ddp_parameter {
  void* value;       /**< count elements */
  void* grad;        /**< count elements, averaged in place; NULL: in a bucket, see ddp_reducer_gradient(). Ignored for
                      * a buffer */
  size_t count;      /**< in elements */
  int32_t dtype;     /**< floating point; for a buffer any ddp_dtype */
  ddp_device device; /**< where value and grad are; the same for all parameters of a model, any for buffers */
  const char* name;  /**< for error messages; copied; may be NULL */
  const int64_t* shape; /**< rank entries, whose product is count; copied; may be NULL: one dimension of count */
  size_t rank;          /**< number of dimensions in shape */
} ddp_parameter;

/** How a reducer works. All zeros mean: as PyTorch. All ranks give equal options, except for gradient_as_bucket_view.
 * Source: the arguments of DistributedDataParallel. */
typedef struct ddp_reducer_options {
  size_t size;                     /**< sizeof(ddp_reducer_options); 0 means its layout in 0.1.0 */
  size_t first_bucket_bytes;       /**< 0 means 1 MiB: the first bucket is small so that communication starts early */
  size_t bucket_bytes;             /**< 0 means 25 MiB */
  const ddp_parameter* buffers;    /**< tensors of the model that are not trained, such as running statistics; the
                                    * array is copied; may be NULL if buffer_count is 0 */
  size_t buffer_count;             /**< number of buffers */
  int32_t find_unused_parameters;  /**< 1: a parameter that is not marked in a step is unused by this rank, not an error
                                    */
  int32_t static_graph;            /**< 1: each is marked as often as in the first step, maybe never, maybe twice */
  int32_t gradient_as_bucket_view; /**< 1: gradients live in the buckets, so that none is copied: every grad is NULL */
  int32_t no_broadcast_buffers;    /**< 1: buffers are copied from rank 0 at creation only, not before each forward */
} ddp_reducer_options;
/** Initial value of a ddp_reducer_options: its size, and the default of each field. */
#define DDP_REDUCER_OPTIONS_INIT \
  { sizeof(ddp_reducer_options), 0, 0, NULL, 0, 0, 0, 0, 0 }

/** Makes a reducer and copies rank 0's parameters and buffers to every rank. Collective. First it checks that all ranks
 * have the same parameters and buffers (count, shapes, types): DDP_MISMATCH on every rank if not, which names the first
 * that differs and both shapes. options may be NULL, and parameters too if count is 0. The array is copied; the memory
 * it points to must stay until the reducer is destroyed, or until ddp_reducer_set_value() and its neighbours name other
 * memory.
 *
 * Parameters may be on a GPU, in a group with a backend for it; then the buckets are there too.
 * ddp_reducer_mark_ready() and ddp_reducer_synchronize() follow this thread's current stream, as operations do: a
 * gradient is what that stream has written by the time it gets there, and work that the stream does after
 * ddp_reducer_synchronize() finds the average. The host does not wait, except in the first step, which may build
 * buckets again, and with find_unused_parameters. NCCL averages, so 16-bit gradients round at every hop. An operation
 * that fails may leave gradients of any value.
 *
 * Buckets are filled from the last parameter to the first. After the first step they are built again in the order in
 * which gradients came on rank 0, unless find_unused_parameters says that there is no such order, or a gradient's
 * memory may not move. */
DDP_API ddp_status ddp_reducer_create(ddp_group* group, const ddp_parameter* parameters, size_t count,
                                      const ddp_reducer_options* options, ddp_reducer** out);
/** Ends a reducer; call it before its session ends. In the middle of a step it aborts the group, because reductions in
 * flight use memory that is about to go. NULL is allowed. */
DDP_API void ddp_reducer_destroy(ddp_reducer* reducer);
/** Returns the memory of gradient i, count elements: the caller's grad, or memory in a bucket that is reduced without a
 * copy. It is valid until the reducer is destroyed. With gradient_as_bucket_view it moves once, values and all, in the
 * first ddp_reducer_synchronize() outside no_sync or at the end of a join: call again after it. NULL if there is no
 * parameter i; ddp_error_last() then says so. */
DDP_API void* ddp_reducer_gradient(ddp_reducer* reducer, size_t i);
/** Sets where the value of parameter i is from now on: count elements of the same type on the same device. Call it
 * between steps if the memory has moved; the reducer reads and writes values at the end of a join, and gives their
 * address to communication hooks. Copies nothing: the new memory has the parameter's values already, the same on every
 * rank. Not collective. DDP_INVALID_ARGUMENT in the middle of a step; the reducer remains usable. */
DDP_API ddp_status ddp_reducer_set_value(ddp_reducer* reducer, size_t i, void* value);
/** Sets where the gradient of parameter i is from now on, as ddp_reducer_set_value() does. For gradients in memory of
 * the caller; DDP_INVALID_ARGUMENT for one that lies in a bucket. */
DDP_API ddp_status ddp_reducer_set_gradient(ddp_reducer* reducer, size_t i, void* grad);
/** Sets where buffer i of the options is from now on, as ddp_reducer_set_value() does. */
DDP_API ddp_status ddp_reducer_set_buffer(ddp_reducer* reducer, size_t i, void* value);
/** Begins a step: copies rank 0's buffers to all ranks, and inside a join informs the ranks without input that there is
 * another step. Call it before each forward if there are buffers or a join; it is collective then. Under no_sync
 * buffers are left alone, except before the first forward after one that synchronizes, as in PyTorch. */
DDP_API ddp_status ddp_reducer_before_forward(ddp_reducer* reducer);
/** Marks gradient i of this step as complete. When all gradients of a bucket are complete, and all buckets before it,
 * the bucket's reduction starts. Marking a parameter twice in a step is an error that names it, and it is final, since
 * the ranks no longer agree on what comes next: every later call on this reducer fails with it too. With static_graph,
 * twice means more often than in the first step. Inside no_sync the mark only counts as a use. */
DDP_API ddp_status ddp_reducer_mark_ready(ddp_reducer* reducer, size_t i);
/** Marks gradient i as unused in this step, so that its bucket need not wait for ddp_reducer_synchronize() to find that
 * out. For find_unused_parameters; do not mark it ready in this step afterwards. Inside no_sync, and with static_graph,
 * the call does nothing. */
DDP_API ddp_status ddp_reducer_mark_unused(ddp_reducer* reducer, size_t i);
/** Waits until every gradient is the average over all ranks. A parameter that was never marked is an error that names
 * it, not a hang, and it is final, like marking one twice. With find_unused_parameters this rank contributes what
 * its gradient holds: zeros, or what has added up over earlier steps. If no rank used a parameter, its gradient stays
 * as it was. The caller's grads change only after all reductions of the step have succeeded. Inside no_sync the call
 * does nothing. Source: torch reducer.cpp, mark_variable_ready_dense(). */
DDP_API ddp_status ddp_reducer_synchronize(ddp_reducer* reducer);
/** Returns 1 if any rank used parameter i in the last step, so that its gradient is an average; 0 if none did. */
DDP_API int32_t ddp_reducer_was_used(const ddp_reducer* reducer, size_t i);
/** Switches averaging off (enabled = 1: gradients stay local, to be accumulated) or on again (0: the next backward
 * reduces what has accumulated). All ranks must do the same. Source: DistributedDataParallel.no_sync. */
DDP_API ddp_status ddp_reducer_set_no_sync(ddp_reducer* reducer, int32_t enabled);
/** Returns 1 if averaging is switched off, else 0. */
DDP_API int32_t ddp_reducer_no_sync(const ddp_reducer* reducer);
/** Returns the number of buckets, for tuning: a step makes as many all_reduces. */
DDP_API size_t ddp_reducer_bucket_count(const ddp_reducer* reducer);

/** How a join ends. All zeros mean: as PyTorch. All ranks give equal options. */
typedef struct ddp_reducer_join_options {
  size_t size;                        /**< sizeof(ddp_reducer_join_options); 0 means its layout in 0.1.0 */
  int32_t divide_by_active_ranks;     /**< 1: gradients are averaged over the ranks that have input, not over all */
  int32_t throw_on_early_termination; /**< 1: all ranks stop as soon as one has no input left */
} ddp_reducer_join_options;
/** Initial value of a ddp_reducer_join_options: its size, and the default of each field. */
#define DDP_REDUCER_JOIN_OPTIONS_INIT \
  { sizeof(ddp_reducer_join_options), 0, 0 }

/** Begins a part of the training in which ranks may have different amounts of input; ddp_reducer_join_end() ends it.
 * Each step begins with ddp_reducer_before_forward(), in which all ranks learn how many have input. With
 * throw_on_early_termination, if one has none, that call fails with DDP_MISMATCH on all ranks, names the first such
 * rank, and the join is over. options may be NULL. Source: DistributedDataParallel.join. */
DDP_API ddp_status ddp_reducer_join_begin(ddp_reducer* reducer, const ddp_reducer_join_options* options);
/** Ends this rank's part in a join: it has no input left. It takes part in the other ranks' steps, with zeros, until no
 * rank has input. Then parameters and buffers become those of the last rank that had some, or of the highest of
 * several. Gradients in buckets mean nothing afterwards. */
DDP_API ddp_status ddp_reducer_join_end(ddp_reducer* reducer);
/** Leaves a join because of an error: this rank goes on without the others, which wait for it until their deadline. */
DDP_API void ddp_reducer_join_cancel(ddp_reducer* reducer);

/** @} */

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
