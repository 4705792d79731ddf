/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * SyncBatchNorm: batch normalisation over the rows of all ranks, for the memory of the CPU.
 */
#ifndef DDP_C_SYNC_BATCH_NORM_H
#define DDP_C_SYNC_BATCH_NORM_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup batch_norm SyncBatchNorm
 *
 * Batch normalisation by the statistics of the batch of all ranks of a group. Its two collectives, an all_gather in
 * forward and an all_reduce in backward, are the group's: one thread at a time, the group's errors and timeout. A rank
 * without rows takes part as well. Everything is computed in double, and elements are rounded once (16-bit ones through
 * float32); all ranks use the same bits. Nothing is allocated after creation. Tensors on a GPU are
 * for ddp::torch::SyncBatchNorm. Source: torch.nn.SyncBatchNorm.
 *
 * @{
 */

/** Tensors of a batch normalisation, `channels` elements each. It never owns them; they must stay, or
 * ddp_sync_batch_norm_set_tensors() names others. All zeros mean: no weight, no bias, no running statistics. */
typedef struct ddp_sync_batch_norm_tensors {
  void* weight;                 /**< NULL: 1 */
  void* bias;                   /**< NULL: 0 */
  void* weight_grad;            /**< this rank's gradient is added to it; NULL: not computed */
  void* bias_grad;              /**< this rank's gradient is added to it; NULL: not computed */
  void* running_mean;           /**< starts as 0; NULL, and running_var too: not tracked */
  void* running_var;            /**< running mean of the unbiased variance; starts as 1 */
  int64_t* num_batches_tracked; /**< one number; NULL: counted inside, starting at 0 */
} ddp_sync_batch_norm_tensors;

/** How a batch normalisation computes. All zeros mean: as PyTorch. */
typedef struct ddp_sync_batch_norm_options {
  size_t size;                /**< sizeof(ddp_sync_batch_norm_options); 0 means its layout in 0.1.0 */
  int32_t dtype;              /**< type of the tensors: DDP_FLOAT32 or DDP_FLOAT64 */
  int32_t cumulative_average; /**< 1: running statistics are the mean over all batches; torch's momentum=None */
  int32_t channels_last;      /**< 1: elements lie as rows x length x channels; 0: rows x channels x length */
  double eps;                 /**< added to the variance; 0 means 1e-5 */
  double momentum;            /**< weight of a new batch in the running statistics; 0 means 0.1 */
} ddp_sync_batch_norm_options;
/** Initial value of a ddp_sync_batch_norm_options: its size, and the default of each field. */
#define DDP_SYNC_BATCH_NORM_OPTIONS_INIT \
  { sizeof(ddp_sync_batch_norm_options), 0, 0, 0, 0, 0 }

/** A batch normalisation. Made by ddp_sync_batch_norm_create(). */
typedef struct ddp_sync_batch_norm ddp_sync_batch_norm;

/** Makes a batch normalisation. Not collective, but every rank must give the same number of channels. tensors and
 * options may be NULL. Destroy it before its session. */
DDP_API ddp_status ddp_sync_batch_norm_create(ddp_group* group, size_t channels,
                                              const ddp_sync_batch_norm_tensors* tensors,
                                              const ddp_sync_batch_norm_options* options, ddp_sync_batch_norm** out);
/** Ends a batch normalisation. NULL is allowed. */
DDP_API void ddp_sync_batch_norm_destroy(ddp_sync_batch_norm* norm);
/** Sets where the tensors are from now on, all of them, if some have moved: gradients in a reducer's buckets move once
 * with gradient_as_bucket_view. tensors may be NULL. The type stays. DDP_INVALID_ARGUMENT changes nothing. */
DDP_API ddp_status ddp_sync_batch_norm_set_tensors(ddp_sync_batch_norm* norm,
                                                   const ddp_sync_batch_norm_tensors* tensors);
/** Chooses the statistics. training = 1, the initial value: batches are normalised by their own statistics, which
 * update the running ones. training = 0: batches are normalised by the running statistics, and nothing is exchanged;
 * without running statistics by this rank's batch, as in PyTorch. All ranks do the same. */
DDP_API ddp_status ddp_sync_batch_norm_set_training(ddp_sync_batch_norm* norm, int32_t training);
/** Normalises: output = (input - mean) / sqrt(variance + eps) * weight + bias, by channel. length is the number of
 * values for each row and channel: 1 for a batch of rows x channels, height x width for images; the number of rows
 * follows from input.count. input is of the tensors' type, or of a 16-bit floating point one with float32 tensors;
 * output has the type of input, and may be the same memory if there is no backward. Collective in training.
 *
 * Errors, found by the first forward in training: DDP_INVALID_ARGUMENT on every rank if all together have fewer than 2
 * values for a channel; DDP_MISMATCH if a rank has another number of channels than rank 0. The group remains usable. */
DDP_API ddp_status ddp_sync_batch_norm_forward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer output,
                                               size_t length);
/** Computes the gradients of the last forward, whose input is given again. grad_input becomes the gradient of the loss
 * of all ranks with respect to this rank's input; it may be grad_output's memory. Gradients of weight and bias are this
 * rank's part, to be averaged with the others' (ddp_reducer). Collective after a forward in training. For a layer that
 * is called twice before backward make two of these over the same tensors. */
DDP_API ddp_status ddp_sync_batch_norm_backward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer grad_output,
                                                ddp_buffer grad_input);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
