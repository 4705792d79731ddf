/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The training kit's C interface (libddp_training): arithmetic between averaged gradients and new weights, and batch
 * normalisation over the rows of all ranks, in the memory of the CPU. ddp/ddp.h has the rules of errors and options.
 */
#ifndef DDP_C_TRAINING_H
#define DDP_C_TRAINING_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup optimizer Optimizers: arithmetic on gradients and weights
 *
 * Functions on arrays in the CPU's memory, from which ddp::AdamW, ddp::GradScaler and the other classes of
 * ddp/training.hpp are made. They do not communicate and keep nothing; any thread may call. Results are the same bits
 * on every processor.
 *
 * @{
 */

/** Multiplies: `to` becomes `from` times factor. Types are as for ddp_buffer_convert(), and `from` may be `to`; 16-bit
 * elements are multiplied in 32 bits. *found_inf becomes 1 if an element of `to` is infinite or not a number, and keeps
 * its value otherwise; found_inf may be NULL. Source: torch._amp_foreach_non_finite_check_and_unscale_. */
DDP_API ddp_status ddp_buffer_multiply(ddp_buffer from, ddp_buffer to, double factor, int32_t* found_inf);
/** Sums the absolute values, each to the power of norm_type, in 64 bits; for the norm type INFINITY it gives the
 * largest. To get the norm of several buffers, or over several ranks, add their sums (or take the largest) and take the
 * root. norm_type is above 0. Source: torch.nn.utils.get_total_norm. */
DDP_API ddp_status ddp_buffer_power_sum(ddp_buffer buffer, double norm_type, double* sum);
/** Combines power sums of several buffers or ranks: adds them, or takes the largest for the norm type INFINITY. NaN
 * stays NaN. 0 without sums. */
DDP_API ddp_status ddp_power_sums_combine(const double* sums, size_t count, double norm_type, double* sum);
/** Gives the norm that belongs to a combined power sum: its root. */
DDP_API ddp_status ddp_power_sum_root(double sum, double norm_type, double* norm);
/** Multiplies all buffers by max_norm / (total_norm + 1e-6) if that is below 1. An infinite norm makes them 0, a norm
 * that is not a number makes all of them NaN; with error_if_nonfinite either is DDP_INVALID_ARGUMENT, and nothing is
 * changed. Source: torch.nn.utils.clip_grads_with_norm_. */
DDP_API ddp_status ddp_buffers_clip(const ddp_buffer* buffers, size_t count, double max_norm, double total_norm,
                                    int32_t error_if_nonfinite);
/** Gives a loss scale times a factor, within its limits; the scale itself if that is not finite. Source:
 * torch._amp_update_scale_. */
DDP_API ddp_status ddp_loss_scale_update(float scale, double factor, float min_scale, float max_scale, float* updated);

/** Numbers of one step of AdamW. Each is used as it is, even 0; DDP_ADAMW_OPTIONS_INIT has PyTorch's defaults. */
typedef struct ddp_adamw_options {
  size_t size;         /**< sizeof(ddp_adamw_options); 0 means its layout in 0.1.0 */
  double lr;           /**< learning rate; 1e-3 */
  double beta1;        /**< share of the gradients' running mean that is kept; 0.9 */
  double beta2;        /**< share of the running mean of their squares that is kept; 0.999 */
  double eps;          /**< added to the divisor; 1e-8 */
  double weight_decay; /**< 1e-2 */
  int32_t maximize;    /**< 1: the step goes up; 0 */
  int64_t step;        /**< number of this step, starting at 1 */
} ddp_adamw_options;
/** Initial value of a ddp_adamw_options: its size, PyTorch's defaults, and the first step. */
#define DDP_ADAMW_OPTIONS_INIT \
  { sizeof(ddp_adamw_options), 1e-3, 0.9, 0.999, 1e-8, 1e-2, 0, 1 }

/** Arrays of one step of AdamW: count elements of DDP_FLOAT32 or DDP_FLOAT64 each, for a parameter or any part of it.
 */
typedef struct ddp_adamw_arrays {
  void* value;      /**< the weights */
  const void* grad; /**< their gradients */
  void* exp_avg;    /**< running mean of the gradients; zeros at first */
  void* exp_avg_sq; /**< running mean of their squares; zeros at first */
  void* updated;    /**< where the new weights go; NULL: into value */
  size_t count;     /**< in elements */
  int32_t dtype;    /**< ddp_dtype of all of them */
} ddp_adamw_arrays;

/** Takes one step of AdamW. DDP_INVALID_ARGUMENT for another type, or a step below 1. Source: torch.optim.AdamW, whose
 * order of operations it keeps. */
DDP_API ddp_status ddp_adamw_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays);

/** Initial value of a ddp_adamw_options for ddp_adam_step(): its size, PyTorch's defaults, and the first step. */
#define DDP_ADAM_OPTIONS_INIT \
  { sizeof(ddp_adamw_options), 1e-3, 0.9, 0.999, 1e-8, 0, 0, 1 }
/** Takes one step of Adam, which is AdamW but for its weight decay: the weights times weight_decay are added to the
 * gradients. DDP_INVALID_ARGUMENT for another type, or a step below 1. Source: torch.optim.Adam, whose order of
 * operations it keeps. */
DDP_API ddp_status ddp_adam_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays);

/** Numbers of one step of stochastic gradient descent. Each is used as it is, even 0; DDP_SGD_OPTIONS_INIT has
 * PyTorch's defaults. */
typedef struct ddp_sgd_options {
  size_t size;         /**< sizeof(ddp_sgd_options); 0 means its layout in 0.1.0 */
  double lr;           /**< learning rate; 1e-3 */
  double momentum;     /**< share of the last direction that is kept; 0 */
  double dampening;    /**< share of the gradient that is left out when there is momentum; 0 */
  double weight_decay; /**< added to the gradient, times the weight; 0 */
  int32_t nesterov;    /**< 1: Nesterov's momentum; needs a momentum, and no dampening */
  int32_t maximize;    /**< 1: the step goes up */
  int64_t step;        /**< number of this step, starting at 1 */
} ddp_sgd_options;
/** Initial value of a ddp_sgd_options: its size, PyTorch's defaults, and the first step. */
#define DDP_SGD_OPTIONS_INIT \
  { sizeof(ddp_sgd_options), 1e-3, 0, 0, 0, 0, 0, 1 }

/** Arrays of one step of stochastic gradient descent: count elements of DDP_FLOAT32 or DDP_FLOAT64 each, for a
 * parameter or any part of it. */
typedef struct ddp_sgd_arrays {
  void* value;           /**< the weights */
  const void* grad;      /**< their gradients */
  void* momentum_buffer; /**< the last direction, zeros at first; NULL without momentum */
  void* updated;         /**< where the new weights go; NULL: into value */
  size_t count;          /**< in elements */
  int32_t dtype;         /**< ddp_dtype of all of them */
} ddp_sgd_arrays;

/** Takes one step of stochastic gradient descent. DDP_INVALID_ARGUMENT for another type, a step below 1, momentum
 * without its array, or Nesterov's momentum without momentum. Source: torch.optim.SGD. */
DDP_API ddp_status ddp_sgd_step(const ddp_sgd_options* options, const ddp_sgd_arrays* arrays);

/** @} */

/**
 * @defgroup batch_norm SyncBatchNorm
 *
 * Batch normalisation by the statistics of the batch of all ranks of a group. Its two collectives, an all_gather in
 * forward and an all_reduce in backward, are the group's: one thread at a time, the group's errors and timeout. A rank
 * without rows takes part as well. Everything is computed in double, and elements are rounded once (16-bit ones through
 * float32); all ranks use the same bits. Nothing is allocated after creation. Tensors on a GPU are
 * for ddp::libtorch::SyncBatchNorm. Source: torch.nn.SyncBatchNorm.
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
