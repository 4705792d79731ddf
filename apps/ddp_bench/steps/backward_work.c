/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200112L
#include "apps/ddp_bench/steps/backward_work.h"

#include <time.h>

enum { kBlock = 4096 }; /* elements; their 16 KiB stay in the first-level cache */

/* Elements that are `value` stay so: any number of updates leaves the same gradient. */
static void update(float* block, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) block[i] = block[i] * 0.5F + value * 0.5F;
}

void backward_work(float* gradient, size_t count, double updates, float value, int64_t ready_at) {
  const double for_each = updates / (double)count;
  double due = 0; /* spreads the updates over all blocks */
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = count - at < kBlock ? count - at : kBlock;
    for (size_t i = 0; i < size; ++i) gradient[at + i] = value;
    for (due += for_each - 1; due >= 1; due -= 1) update(gradient + at, size, value);
    if (due < 0) due = 0;
  }
  if (ready_at <= 0) return;
  const struct timespec until = {ready_at / 1000000000, ready_at % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
  }
}

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double backward_work_speed(void) {
  static float gradient[kBlock];
  const double updates = 2e8;
  backward_work(gradient, kBlock, updates, 1, 0);
  const double start = cpu_seconds();
  backward_work(gradient, kBlock, updates, 1, 0);
  return updates / (cpu_seconds() - start);
}
