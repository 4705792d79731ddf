/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Training on the memory of a GPU: optimizers, the loss scale, norms and conversions, as kernels on the current stream.
 */
#ifndef DDP_C_CUDA_TRAINING_H
#define DDP_C_CUDA_TRAINING_H

#include "ddp/c/base.h"
#include "ddp/c/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup cuda_training Optimizers on GPUs
 *
 * Functions on arrays in the memory of one GPU, from which the classes of ddp/cuda/ and, for parameters that are there,
 * ddp::AdamW and its like are made. Each call puts its kernels on this thread's current stream of that device
 * (ddp_stream_set_current()) and returns; functions that make the host wait say so. All calls on one object must be
 * ordered, by one stream or by events. Objects are destroyed after the work that was enqueued with them is done:
 * destroying one waits for the device.
 *
 * Kernels are a part of libddp if it was built with NVRTC, as the wheel is. They need NVIDIA's driver 525 or newer and
 * a GPU of compute capability 7.5 or newer. Where something of that is missing, creating an object is DDP_SYSTEM, and
 * ddp_error_last() says what.
 *
 * Elements are computed with as the functions of ddp/c/optimizer.h do, to the same bits. Two things may differ in the
 * last bits: the coefficients of Adam, since pow() of the GPU may round the last bit of a double in another way, and
 * norms, whose additions are in another order.
 * @{ */

/** Memory of a GPU. */
typedef struct ddp_cuda_memory ddp_cuda_memory;
/** Allocates bytes of a GPU's memory, all zeros; *address becomes where they are. The host waits. */
DDP_API ddp_status ddp_cuda_memory_create(int32_t device, size_t bytes, ddp_cuda_memory** memory, void** address);
/** Frees the memory; NULL does nothing. The host waits for the device. */
DDP_API void ddp_cuda_memory_destroy(ddp_cuda_memory* memory);
/** Copies bytes from an offset of the memory to the host, which waits for the current stream. */
DDP_API ddp_status ddp_cuda_memory_read(const ddp_cuda_memory* memory, size_t offset, void* to, size_t bytes);
/** Copies bytes from the host to an offset of the memory. The host waits for the current stream. */
DDP_API ddp_status ddp_cuda_memory_write(ddp_cuda_memory* memory, size_t offset, const void* from, size_t bytes);

/** One tensor in the memory of a GPU, and what belongs to it: count elements of one type each. */
typedef struct ddp_cuda_tensor {
  void* value;     /**< the weights; NULL where only gradients are used */
  void* grad;      /**< their gradients */
  void* states[2]; /**< Adam, AdamW: exp_avg and exp_avg_sq; SGD: momentum_buffer or NULL, and NULL; zeros at first */
  size_t count;    /**< in elements */
  int32_t dtype;   /**< ddp_dtype of all of them: DDP_FLOAT32 or DDP_FLOAT64 for an optimizer, any float for a norm */
  int32_t group;   /**< number of its group of options, from 0 */
} ddp_cuda_tensor;

/** Pairs of arrays in the memory of a GPU: what is read, and where the result goes. */
typedef struct ddp_cuda_pairs ddp_cuda_pairs;
/** Makes a list of count pairs. Types are as for ddp_buffer_convert(); from[i] may be to[i] for ddp_cuda_multiply() and
 * ddp_cuda_unscale(). The memory must stay. The host waits. */
DDP_API ddp_status ddp_cuda_pairs_create(int32_t device, const ddp_buffer* from, const ddp_buffer* to, size_t count,
                                         ddp_cuda_pairs** pairs);
/** Destroys the list; NULL does nothing. */
DDP_API void ddp_cuda_pairs_destroy(ddp_cuda_pairs* pairs);
/** Converts all pairs, as ddp_buffer_convert() does one. */
DDP_API ddp_status ddp_cuda_convert(const ddp_cuda_pairs* pairs);
/** Multiplies all pairs by a factor, as ddp_buffer_multiply() does one. Overflows are not noted. */
DDP_API ddp_status ddp_cuda_multiply(const ddp_cuda_pairs* pairs, double factor);

/** State of a loss scale; see ddp::GradScalerOptions. */
typedef struct ddp_cuda_scaler_state {
  size_t size;             /**< sizeof(ddp_cuda_scaler_state) */
  double growth_factor;    /**< above 1; 2 */
  double backoff_factor;   /**< below 1; 0.5 */
  float scale;             /**< current scale; 65536 */
  float min_scale;         /**< lower limit of the scale; 0 */
  float max_scale;         /**< upper limit of the scale; infinity */
  float found_inf;         /**< 1: an overflow was found since the last update; 0 */
  int32_t growth_interval; /**< number of updates without overflow after which the scale grows; 2000 */
  int32_t growth_tracker;  /**< updates without overflow since the scale last changed; 0 */
} ddp_cuda_scaler_state;

/** A loss scale in the memory of a GPU. */
typedef struct ddp_cuda_scaler ddp_cuda_scaler;
/** Makes a loss scale. DDP_INVALID_ARGUMENT for factors that cannot work. The host waits. */
DDP_API ddp_status ddp_cuda_scaler_create(int32_t device, const ddp_cuda_scaler_state* state, ddp_cuda_scaler** scaler);
/** Destroys the loss scale; NULL does nothing. The host waits for the device. */
DDP_API void ddp_cuda_scaler_destroy(ddp_cuda_scaler* scaler);
/** Gives the addresses of two floats in the GPU's memory: the scale, which kernels of the program multiply the loss by,
 * and found_inf, which ranks may take the largest of. */
DDP_API ddp_status ddp_cuda_scaler_addresses(const ddp_cuda_scaler* scaler, void** scale, void** found_inf);
/** Divides all pairs by the scale, and sets found_inf to 1 if a result is infinite or not a number. Source:
 * torch._amp_foreach_non_finite_check_and_unscale_. */
DDP_API ddp_status ddp_cuda_unscale(const ddp_cuda_pairs* pairs, ddp_cuda_scaler* scaler);
/** Ends an iteration: the scale falls after an overflow, or grows after growth_interval iterations without one, and
 * found_inf becomes 0. Source: torch._amp_update_scale_. */
DDP_API ddp_status ddp_cuda_scaler_update(ddp_cuda_scaler* scaler);
/** Gives the state. The host waits for the current stream. */
DDP_API ddp_status ddp_cuda_scaler_read(const ddp_cuda_scaler* scaler, ddp_cuda_scaler_state* state);
/** Sets the state. */
DDP_API ddp_status ddp_cuda_scaler_write(ddp_cuda_scaler* scaler, const ddp_cuda_scaler_state* state);

/** What an optimizer computes. */
typedef enum ddp_cuda_rule {
  DDP_CUDA_ADAMW = 0, /**< ddp_adamw_step() */
  DDP_CUDA_ADAM = 1,  /**< ddp_adam_step() */
  DDP_CUDA_SGD = 2    /**< ddp_sgd_step() */
} ddp_cuda_rule;

/** An optimizer of parameters in the memory of a GPU. */
typedef struct ddp_cuda_optimizer ddp_cuda_optimizer;
/** Makes an optimizer with a number of groups of options. rule is a ddp_cuda_rule. The host waits. */
DDP_API ddp_status ddp_cuda_optimizer_create(int32_t device, int32_t rule, size_t groups,
                                             ddp_cuda_optimizer** optimizer);
/** Destroys the optimizer, but not the tensors' memory; NULL does nothing. The host waits for the device. */
DDP_API void ddp_cuda_optimizer_destroy(ddp_cuda_optimizer* optimizer);
/** Sets the tensors: before the first step, and when their memory has moved. The list is copied, their memory must
 * stay. The host waits. */
DDP_API ddp_status ddp_cuda_optimizer_set_tensors(ddp_cuda_optimizer* optimizer, const ddp_cuda_tensor* tensors,
                                                  size_t count);
/** Sets the options of a group of Adam or AdamW from the next step on; their field step is ignored. */
DDP_API ddp_status ddp_cuda_optimizer_set_adamw(ddp_cuda_optimizer* optimizer, size_t group,
                                                const ddp_adamw_options* options);
/** Sets the options of a group of SGD from the next step on; their field step is ignored. */
DDP_API ddp_status ddp_cuda_optimizer_set_sgd(ddp_cuda_optimizer* optimizer, size_t group,
                                              const ddp_sgd_options* options);
/** Takes one step of all tensors, in two kernels. With a scaler the step is left out, and not counted, if found_inf is
 * set; scaler may be NULL. */
DDP_API ddp_status ddp_cuda_optimizer_step(ddp_cuda_optimizer* optimizer, const ddp_cuda_scaler* scaler);
/** Gives the number of steps taken. The host waits for the current stream. */
DDP_API ddp_status ddp_cuda_optimizer_steps_taken(const ddp_cuda_optimizer* optimizer, int64_t* steps);
/** Gives the address of the number of steps taken, an int64_t in the GPU's memory, to save it with the state. */
DDP_API ddp_status ddp_cuda_optimizer_steps_address(const ddp_cuda_optimizer* optimizer, void** steps);
/** Sets the number of steps taken, after a state was loaded. */
DDP_API ddp_status ddp_cuda_optimizer_set_steps_taken(ddp_cuda_optimizer* optimizer, int64_t steps);

/** The norm of gradients in the memory of a GPU. */
typedef struct ddp_cuda_norm ddp_cuda_norm;
/** Makes a norm of the gradients of count tensors. shares is the number of ranks that each have a share of the
 * gradients; 1 if this rank has all. The list is copied, the memory must stay. The host waits. */
DDP_API ddp_status ddp_cuda_norm_create(int32_t device, const ddp_cuda_tensor* tensors, size_t count, size_t shares,
                                        ddp_cuda_norm** norm);
/** Destroys the norm; NULL does nothing. The host waits for the device. */
DDP_API void ddp_cuda_norm_destroy(ddp_cuda_norm* norm);
/** Sums this rank's absolute values to the power of norm_type, as ddp_buffer_power_sum() does. */
DDP_API ddp_status ddp_cuda_norm_measure(ddp_cuda_norm* norm, double norm_type);
/** Gives the addresses of doubles in the GPU's memory: this rank's sum, and those of all shares by rank. With more than
 * one share the caller gathers the first into the second, between ddp_cuda_norm_measure() and ddp_cuda_norm_clip(). */
DDP_API ddp_status ddp_cuda_norm_addresses(const ddp_cuda_norm* norm, void** own, void** shares);
/** Takes the root of the sum of all shares, and multiplies this rank's gradients by max_norm / (norm + 1e-6) if that is
 * below 1. Source: torch.nn.utils.clip_grad_norm_. */
DDP_API ddp_status ddp_cuda_norm_clip(ddp_cuda_norm* norm, double max_norm);
/** Gives the norm from before the last ddp_cuda_norm_clip(). The host waits for the current stream. */
DDP_API ddp_status ddp_cuda_norm_read(const ddp_cuda_norm* norm, double* value);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
