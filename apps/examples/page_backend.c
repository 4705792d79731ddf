/* SPDX-License-Identifier: BSD-3-Clause
 * A backend of libddp in a page: libddp_page.so, for init_process_group({.backend = "page"}). It shows ddp/backend.h.
 *
 *   cc -shared -fPIC -o libddp_page.so page_backend.c -I PREFIX/include
 *
 * The ranks of a group, all on one machine, share a file in memory that has a slot for each of them. In every operation
 * each rank shows its bytes to all, a slot full at a time, and takes from the slots what is for it. What the backend
 * lacks, such as messages, is absent from its table.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <ddp/backend.h>
#include <ddp/c/base.h>        /* ddp_dtype */
#include <ddp/c/collectives.h> /* ddp_reduce_op */

struct slot {
  _Alignas(64) atomic_uint steps; /* how often its rank has come to meet() */
  _Alignas(64) char bytes[1 << 18];
};

struct ddp_backend_group {
  int rank, size;
  struct slot* slots; /* one for each rank */
  atomic_bool aborted;
};

static ddp_backend_status fail(ddp_backend_error* error, ddp_backend_status status, const char* what) {
  snprintf(error->text, sizeof error->text, "%s", what);
  return status;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until all ranks have come here as often as this one. What they wrote before can be read after. */
static ddp_backend_status meet(ddp_backend_group* group, int64_t deadline, ddp_backend_error* error) {
  const unsigned step = atomic_fetch_add(&group->slots[group->rank].steps, 1) + 1;
  for (int rank = 0; rank < group->size; ++rank) {
    while ((int)(atomic_load(&group->slots[rank].steps) - step) < 0) {
      if (atomic_load(&group->aborted)) return fail(error, DDP_BACKEND_ABORTED, "the group was aborted");
      if (now_ms() > deadline) return fail(error, DDP_BACKEND_TIMEOUT, "a rank has not come");
      sched_yield();
    }
  }
  return DDP_BACKEND_OK;
}

/* What take functions get: a piece of a rank's bytes, and where it was in them. */
struct piece {
  const char* bytes;
  size_t size, at;
  int rank, root;
  char* output;
  size_t stride; /* bytes of output for each rank */
};

static ddp_backend_status show(ddp_backend_group* group, const void* mine, size_t size, struct piece piece,
                               void (*take)(const struct piece*), int64_t timeout_ms, ddp_backend_error* error) {
  const int64_t deadline = now_ms() + timeout_ms;
  for (piece.at = 0; piece.at < size; piece.at += piece.size) {
    const size_t left = size - piece.at, most = sizeof group->slots->bytes;
    piece.size = left < most ? left : most;
    memcpy(group->slots[group->rank].bytes, (const char*)mine + piece.at, piece.size);
    ddp_backend_status status = meet(group, deadline, error);
    if (status != DDP_BACKEND_OK) return status;
    for (piece.rank = 0; piece.rank < group->size; ++piece.rank) {
      piece.bytes = group->slots[piece.rank].bytes;
      take(&piece);
    }
    status = meet(group, deadline, error); /* the slots may be written again */
    if (status != DDP_BACKEND_OK) return status;
  }
  return DDP_BACKEND_OK;
}

static void take_all(const struct piece* piece) {
  memcpy(piece->output + (size_t)piece->rank * piece->stride + piece->at, piece->bytes, piece->size);
}

static void take_roots(const struct piece* piece) {
  if (piece->rank == piece->root) memcpy(piece->output + piece->at, piece->bytes, piece->size);
}

static void take_sum(const struct piece* piece) { /* every rank adds in the same order, and so has the same sum */
  float* const sum = (float*)(piece->output + piece->at);
  const float* const theirs = (const float*)piece->bytes;
  for (size_t i = 0; i < piece->size / sizeof *sum; ++i) sum[i] = piece->rank == 0 ? theirs[i] : sum[i] + theirs[i];
}

static size_t in_bytes(size_t count, ddp_backend_dtype dtype) {
  static const unsigned char sizes[] = {4, 8, 4, 8, 1, 1, 2, 2, 4, 8, 2, 2}; /* in the order of ddp_dtype */
  return count * sizes[dtype];
}

static ddp_backend_status all_reduce(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                     ddp_backend_reduce_op op, uint32_t tag, int64_t timeout_ms,
                                     ddp_backend_error* error) {
  (void)tag;
  if (dtype != DDP_FLOAT32 || op != DDP_SUM) return fail(error, DDP_BACKEND_UNSUPPORTED, "it has sums of floats only");
  return show(group, data, in_bytes(count, dtype), (struct piece){.output = data}, take_sum, timeout_ms, error);
}

static ddp_backend_status broadcast(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                    int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error* error) {
  (void)tag;
  const struct piece piece = {.output = data, .root = root};
  return show(group, data, in_bytes(count, dtype), piece, take_roots, timeout_ms, error);
}

static ddp_backend_status all_gather(ddp_backend_group* group, const void* input, void* output, size_t count,
                                     ddp_backend_dtype dtype, uint32_t tag, int64_t timeout_ms,
                                     ddp_backend_error* error) {
  (void)tag;
  const size_t size = in_bytes(count, dtype);
  return show(group, input, size, (struct piece){.output = output, .stride = size}, take_all, timeout_ms, error);
}

static ddp_backend_status barrier(ddp_backend_group* group, uint32_t tag, int64_t timeout_ms,
                                  ddp_backend_error* error) {
  (void)tag;
  return meet(group, now_ms() + timeout_ms, error);
}

static void group_destroy(ddp_backend_group* group) {
  munmap(group->slots, (size_t)group->size * sizeof(struct slot));
  free(group);
}

static void take_path(void* sink, const void* value, size_t size) { memcpy(sink, value, size < 64 ? size : 64); }

/* Rank 0 makes the file and leaves its path in the store. Once all have opened it, it needs no name any more. */
static ddp_backend_status group_create(const ddp_backend_group_config* config, ddp_backend_group** out,
                                       ddp_backend_error* error) {
  const ddp_backend_store* const store = &config->store;
  const size_t size = (size_t)config->size * sizeof(struct slot);
  char path[64] = "/dev/shm/ddp_page_XXXXXX";
  int file = -1;
  if (config->rank == 0) {
    file = mkstemp(path);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) return fail(error, DDP_BACKEND_ERROR, "no file in /dev/shm");
    if (store->set(store->context, "file", path, sizeof path, error) != 0) return DDP_BACKEND_ERROR;
  } else {
    if (store->get(store->context, "file", config->init_timeout_ms, path, take_path, error) != 0) {
      return DDP_BACKEND_TIMEOUT;
    }
    file = open(path, O_RDWR | O_CLOEXEC);
  }
  void* const slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (slots == MAP_FAILED) return fail(error, DDP_BACKEND_ERROR, "cannot map rank 0's file (are all on one machine?)");
  ddp_backend_group* const group = malloc(sizeof *group);
  group->rank = config->rank;
  group->size = config->size;
  group->slots = slots;
  atomic_init(&group->aborted, 0);
  const ddp_backend_status status = meet(group, now_ms() + config->init_timeout_ms, error);
  if (config->rank == 0) unlink(path);
  if (status == DDP_BACKEND_OK) *out = group;
  if (status != DDP_BACKEND_OK) group_destroy(group);
  return status;
}

static void group_abort(ddp_backend_group* group) { atomic_store(&group->aborted, 1); }

static const ddp_backend_table table = {
    .abi_version = DDP_BACKEND_ABI_VERSION,
    .struct_size = sizeof(ddp_backend_table),
    .name = "page",
    .group_create = group_create,
    .group_destroy = group_destroy,
    .group_abort = group_abort,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .barrier = barrier,
};

__attribute__((visibility("default"))) const ddp_backend_table* ddp_backend_open(uint32_t abi_version) {
  return abi_version == DDP_BACKEND_ABI_VERSION ? &table : NULL;
}
