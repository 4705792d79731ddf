// SPDX-License-Identifier: BSD-3-Clause
// What a worker records for scripts/bench: lines "rank restart what pid nanoseconds" in one file that all ranks append
// to. The nanoseconds are CLOCK_REALTIME's, which all processes of a machine share, also those in Python.
#ifndef APPS_DDP_BENCH_WORKER_STAMPS_H
#define APPS_DDP_BENCH_WORKER_STAMPS_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// Returns the rank from the variables of ddprun and torchrun, Open MPI or MPICH; -1 if none is set.
static inline int rank_in_environment(void) {
  static const char* const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    const char* const value = getenv(names[i]);
    if (value) return atoi(value);
  }
  return -1;
}

static inline int restart_in_environment(void) {
  const char* const value = getenv("TORCHELASTIC_RESTART_COUNT");
  return value ? atoi(value) : 0;
}

// Appends a line with one write, so that lines of several ranks do not mix.
static inline void stamp(const char* path, const char* what) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || dprintf(file, "%d %d %s %ld %lld\n", rank_in_environment(), restart_in_environment(), what,
                          (long)getpid(), (long long)now.tv_sec * 1000000000 + now.tv_nsec) < 0) {
    perror(path);
    exit(1);
  }
  close(file);
}

#endif  // APPS_DDP_BENCH_WORKER_STAMPS_H
