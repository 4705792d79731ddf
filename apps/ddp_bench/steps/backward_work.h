/* SPDX-License-Identifier: BSD-3-Clause
 * The work of a synthetic backward pass, the same machine code for libddp's steps and for PyTorch's
 * (libbackward_work.so, which Python opens with ctypes). First it does a fixed amount of arithmetic, so that other code
 * that takes the CPU delays it; then it sleeps until a given time, as a host does that waits for its GPU. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets all elements of the gradient to `value` with about `updates` updates of single elements, at least one for each.
 * Then returns at ready_at, in nanoseconds of CLOCK_MONOTONIC, or at once if that is past. */
__attribute__((visibility("default"))) void backward_work(float* gradient, size_t count, double updates, float value,
                                                          int64_t ready_at);
/* Returns how many updates this CPU does in a second of the thread's CPU time. */
__attribute__((visibility("default"))) double backward_work_speed(void);

#ifdef __cplusplus
}
#endif
