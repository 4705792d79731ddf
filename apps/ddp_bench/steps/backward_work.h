/* SPDX-License-Identifier: BSD-3-Clause
 * What stands for the work of backward, the same machine code for libddp's steps and for PyTorch's
 * (libbackward_work.so, which Python opens with ctypes): arithmetic of a fixed amount, so that whoever takes the CPU
 * from it makes it later, and then, as a host that waits for its GPU does, sleep until a moment. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the gradient, all elements `value`, with about so many updates of single elements, at least one for each.
 * Then returns at ready_at, nanoseconds of CLOCK_MONOTONIC; at once if that is past. */
__attribute__((visibility("default"))) void backward_work(float* gradient, size_t count, double updates, float value,
                                                          int64_t ready_at);
/* Updates in a second of this thread's CPU time. */
__attribute__((visibility("default"))) double backward_work_speed(void);

#ifdef __cplusplus
}
#endif
