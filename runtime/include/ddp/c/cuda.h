/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CUDA: the streams that operations on the memory of a GPU follow, and the group's NCCL communicator.
 */
#ifndef DDP_C_CUDA_H
#define DDP_C_CUDA_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup cuda CUDA streams
 *
 * Operations on the memory of a GPU (ddp_buffer::device is a DDP_CUDA one) are enqueued, as kernels are. An operation
 * begins when everything that was on this thread's current stream of that device at the call is done, and runs on a
 * stream of the group. No call waits for its end: a blocking collective and ddp_work_wait() make the current stream
 * wait for it, so that later work on that stream finds the result; ddp_work_wait_for() checks, and
 * ddp_work_synchronize() makes the host wait. Two things make the host wait: ddp_barrier() in a group without a backend
 * for the CPU, and the first operation of a group, which returns when the other ranks have called theirs.
 *
 * Buffers must not be freed or given to another stream before the operation has ended. Operations differ from those on
 * the CPU's memory in these ways: reductions of 16-bit floating point round at every hop; 16-bit integers and bitwise
 * reductions are missing; messages ignore their tags, must name their source, and take turns with the collectives, so
 * two ranks that both send first wait for each other. An error, or a deadline that passes, aborts the communicator:
 * work on the current stream then goes on with a buffer whose content is unspecified, and the next call, or
 * ddp_work_synchronize(), reports the error.
 * @{ */

/** Sets the stream of a CUDA device that this thread's operations follow, and that waits for them: a cudaStream_t or
 * CUstream of that device. NULL, the initial value, is the legacy default stream. Source: torch.cuda.stream. */
DDP_API ddp_status ddp_stream_set_current(int32_t device, void* stream);
/** Gives the stream that ddp_stream_set_current() has set last on this thread, or NULL. Source:
 * torch.cuda.current_stream. */
DDP_API ddp_status ddp_stream_current(int32_t device, void** stream);
/** Gives the group's ncclComm_t, for programs that call NCCL themselves. It is non-blocking (see
 * ncclCommInitRankConfig). While the program is in a call on it, no operation of the group on the memory of a GPU may
 * be in flight. DDP_ABORTED once an operation has failed: the communicator is gone then. */
DDP_API ddp_status ddp_group_nccl_communicator(ddp_group* group, void** communicator);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
