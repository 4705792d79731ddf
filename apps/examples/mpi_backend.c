/* SPDX-License-Identifier: BSD-3-Clause
 * A backend of libddp over MPI, in C: libddp_mpi.so, for init_process_group({.backend = "mpi"}). It is the worked
 * example of ddp/backend.h, and it is written against MPI 3.1 alone, so it builds with Open MPI, MPICH and their kin.
 *
 *   mpicc -shared -fPIC -o libddp_mpi.so mpi_backend.c -I PREFIX/include
 *
 * Ranks that one mpirun has started meet in MPI_COMM_WORLD. Ranks that ddprun has started are a world of one rank each,
 * and connect to each other (MPI_Comm_accept), which Open MPI does through its name server, ompi-server.
 *
 * MPI cannot take back an operation that has begun, and libddp's callers may free their memory when a deadline has
 * passed. So each operation works on memory of its own, and one that fails leaves it to MPI until the process ends,
 * which it then does without MPI_Finalize. mpirun kills the other ranks for that; Open MPI 4.1's may crash or hang
 * after it.
 */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ddp/backend.h>
#include <ddp/c/base.h>        /* ddp_dtype */
#include <ddp/c/collectives.h> /* ddp_reduce_op */

enum {
  kTagBits = 31,           /* bits of a message's tag that MPI takes; the rest chooses the communicator */
  kMessageComms = 8,       /* 2^34 / 2^31 */
  kSpins = 1000,           /* tests of a request before this thread begins to sleep between them */
  kPieceElements = 1 << 28 /* elements that MPI reduces at once: it counts in int */
};

struct ddp_backend_group {
  int rank, size;
  MPI_Comm collectives;
  MPI_Comm messages[kMessageComms];
  atomic_bool aborted;
};

struct ddp_backend_message {
  MPI_Request request;
  int peer;
  unsigned char* memory;
  void* output; /* where a received message goes; NULL in a message that is sent */
  size_t bytes;
  bool has_ended;
};

/* ---- Errors and waiting ---- */

static ddp_backend_status fail(ddp_backend_error* error, ddp_backend_status status, const char* what) {
  snprintf(error->text, sizeof error->text, "%s", what);
  return status;
}

static ddp_backend_status mpi_failed(ddp_backend_error* error, const char* function, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  snprintf(error->text, sizeof error->text, "%s: %.400s", function, text);
  return DDP_BACKEND_ERROR;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for a request by asking: MPI has no wait that ends with a deadline or an abort. */
static ddp_backend_status finish(const ddp_backend_group* group, const char* function, int started,
                                 MPI_Request* request, MPI_Status* status, int64_t timeout_ms,
                                 ddp_backend_error* error) {
  if (started != MPI_SUCCESS) return mpi_failed(error, function, started);
  const int64_t deadline = now_ms() + timeout_ms;
  for (int tests = 0;; ++tests) {
    int is_done = 0;
    const int code = MPI_Test(request, &is_done, status);
    if (code != MPI_SUCCESS) return mpi_failed(error, function, code);
    if (is_done) return DDP_BACKEND_OK;
    if (atomic_load(&group->aborted)) return fail(error, DDP_BACKEND_ABORTED, "the group was aborted");
    if (now_ms() >= deadline) return fail(error, DDP_BACKEND_TIMEOUT, "no answer within the time limit");
    if (tests < kSpins) {
      sched_yield();
    } else {
      const struct timespec pause = {.tv_nsec = 50000};
      nanosleep(&pause, NULL);
    }
  }
}

/* ---- Types ---- */

static MPI_Datatype type_of(ddp_backend_dtype dtype) {
  switch (dtype) {
    case DDP_FLOAT32:
      return MPI_FLOAT;
    case DDP_FLOAT64:
      return MPI_DOUBLE;
    case DDP_INT32:
      return MPI_INT32_T;
    case DDP_INT64:
      return MPI_INT64_T;
    case DDP_UINT8:
      return MPI_UINT8_T;
    case DDP_INT8:
      return MPI_INT8_T;
    case DDP_INT16:
      return MPI_INT16_T;
    case DDP_UINT16:
      return MPI_UINT16_T;
    case DDP_UINT32:
      return MPI_UINT32_T;
    case DDP_UINT64:
      return MPI_UINT64_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

/* Reductions of integers are our own, since MPIs disagree with libddp and with each other about them: in Open MPI 4.1
 * a sum of 8-bit numbers stops at the largest, and MPICH 4.0 compares unsigned numbers as if they were signed. */
#define FOR_EACH(T, RESULT)                              \
  {                                                      \
    const T* const a = in;                               \
    T* const b = in_and_out;                             \
    for (int i = 0; i < *count; ++i) b[i] = (T)(RESULT); \
    return;                                              \
  }
#define INTEGER_REDUCTION(NAME, RESULT)                                          \
  static void NAME(void* in, void* in_and_out, int* count, MPI_Datatype* type) { \
    if (*type == type_of(DDP_UINT8)) FOR_EACH(uint8_t, RESULT)                   \
    if (*type == type_of(DDP_INT8)) FOR_EACH(int8_t, RESULT)                     \
    if (*type == type_of(DDP_UINT16)) FOR_EACH(uint16_t, RESULT)                 \
    if (*type == type_of(DDP_INT16)) FOR_EACH(int16_t, RESULT)                   \
    if (*type == type_of(DDP_UINT32)) FOR_EACH(uint32_t, RESULT)                 \
    if (*type == type_of(DDP_INT32)) FOR_EACH(int32_t, RESULT)                   \
    if (*type == type_of(DDP_UINT64)) FOR_EACH(uint64_t, RESULT)                 \
    FOR_EACH(int64_t, RESULT)                                                    \
  }
INTEGER_REDUCTION(sum, (uint64_t)a[i] + (uint64_t)b[i])
INTEGER_REDUCTION(product, (uint64_t)a[i] * (uint64_t)b[i])
INTEGER_REDUCTION(smaller, a[i] < b[i] ? a[i] : b[i])
INTEGER_REDUCTION(larger, a[i] > b[i] ? a[i] : b[i])
INTEGER_REDUCTION(bitwise_and, a[i] & b[i])
INTEGER_REDUCTION(bitwise_or, a[i] | b[i])
INTEGER_REDUCTION(bitwise_xor, a[i] ^ b[i])

static const struct {
  ddp_backend_reduce_op op;
  MPI_User_function* on_integers;
} reductions[] = {{DDP_SUM, &sum},          {DDP_PRODUCT, &product}, {DDP_MIN, &smaller},     {DDP_MAX, &larger},
                  {DDP_BAND, &bitwise_and}, {DDP_BOR, &bitwise_or},  {DDP_BXOR, &bitwise_xor}};
enum { kReductions = sizeof reductions / sizeof *reductions };
static MPI_Op integer_ops[kReductions]; /* made by start_mpi() */

static MPI_Op operation_of(ddp_backend_reduce_op op, ddp_backend_dtype dtype) {
  if (dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64) {
    switch (op) {
      case DDP_SUM:
        return MPI_SUM;
      case DDP_PRODUCT:
        return MPI_PROD;
      case DDP_MIN:
        return MPI_MIN;
      case DDP_MAX:
        return MPI_MAX;
      default:
        return MPI_OP_NULL;
    }
  }
  for (int i = 0; i < kReductions; ++i) {
    if (reductions[i].op == op) return integer_ops[i];
  }
  return MPI_OP_NULL;
}

/* Returns a type of that many bytes, which the caller frees: counts in MPI are of type int, and messages may be larger.
 */
static MPI_Datatype bytes_type(size_t bytes) {
  const int block = 1 << 30;
  MPI_Datatype blocks, all;
  if (bytes <= INT_MAX) {
    MPI_Type_contiguous((int)bytes, MPI_BYTE, &all);
  } else {
    const int whole = (int)(bytes / (size_t)block), rest = (int)(bytes % (size_t)block);
    MPI_Type_vector(whole, block, block, MPI_BYTE, &blocks);
    const int lengths[2] = {1, rest};
    const MPI_Aint places[2] = {0, (MPI_Aint)whole * block};
    const MPI_Datatype types[2] = {blocks, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &all);
    MPI_Type_free(&blocks);
  }
  MPI_Type_commit(&all);
  return all;
}

static size_t in_bytes(size_t count, ddp_backend_dtype dtype) {
  int size = 2; /* DDP_FLOAT16 and DDP_BFLOAT16, which MPI can only move */
  if (type_of(dtype) != MPI_DATATYPE_NULL) MPI_Type_size(type_of(dtype), &size);
  return count * (size_t)size;
}

/* Returns memory of its own for an operation, with a copy of `data` if there is any. */
static unsigned char* memory_for(size_t bytes, const void* data) {
  unsigned char* memory = malloc(bytes > 0 ? bytes : 1);
  if (memory != NULL && data != NULL && bytes > 0) memcpy(memory, data, bytes);
  return memory;
}

/* ---- Collectives ---- */

/* Memory of an operation with an output of `out` bytes and an input: returns where the input begins. MPI wants the two
 * apart even if they are empty. */
static size_t input_place(size_t out) { return (out / 64 + 1) * 64; }

/* Returns memory for an output of `out` bytes and an input, with the input in its place. */
static unsigned char* memory_with_input(const void* input, size_t in, size_t out) {
  unsigned char* const memory = memory_for(input_place(out) + in, NULL);
  if (memory != NULL && in > 0) memcpy(memory + input_place(out), input, in);
  return memory;
}

/* Ends an operation: takes the result out of its memory, which MPI may still write to after a failure. */
static ddp_backend_status take(ddp_backend_status status, unsigned char* memory, void* output, size_t bytes) {
  if (status != DDP_BACKEND_OK) return status;
  if (output != NULL && bytes > 0) memcpy(output, memory, bytes);
  free(memory);
  return DDP_BACKEND_OK;
}

static ddp_backend_status reduce_piece(ddp_backend_group* group, unsigned char* data, int count, MPI_Datatype type,
                                       MPI_Op op, int root, int64_t timeout_ms, ddp_backend_error* error) {
  MPI_Request request;
  if (root < 0) {
    const int started = MPI_Iallreduce(MPI_IN_PLACE, data, count, type, op, group->collectives, &request);
    return finish(group, "MPI_Iallreduce", started, &request, MPI_STATUS_IGNORE, timeout_ms, error);
  }
  const bool is_root = group->rank == root;
  const int started = MPI_Ireduce(is_root ? MPI_IN_PLACE : data, is_root ? data : NULL, count, type, op, root,
                                  group->collectives, &request);
  return finish(group, "MPI_Ireduce", started, &request, MPI_STATUS_IGNORE, timeout_ms, error);
}

/* Reduces to the root, or to all ranks if root is below 0. */
static ddp_backend_status reduce_to(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                    ddp_backend_reduce_op op, int root, int64_t timeout_ms, ddp_backend_error* error) {
  const MPI_Datatype type = type_of(dtype);
  const MPI_Op operation = operation_of(op, dtype);
  if (type == MPI_DATATYPE_NULL || operation == MPI_OP_NULL) {
    return fail(error, DDP_BACKEND_UNSUPPORTED, "MPI has no such reduction for this type");
  }
  const int64_t deadline = now_ms() + timeout_ms;
  unsigned char* const memory = memory_for(in_bytes(count, dtype), data);
  if (memory == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  ddp_backend_status status = DDP_BACKEND_OK;
  for (size_t done = 0; done < count && status == DDP_BACKEND_OK; done += kPieceElements) {
    const size_t rest = count - done;
    status = reduce_piece(group, memory + in_bytes(done, dtype), rest < kPieceElements ? (int)rest : kPieceElements,
                          type, operation, root, deadline - now_ms(), error);
  }
  const bool has_result = root < 0 || root == group->rank;
  return take(status, memory, has_result ? data : NULL, in_bytes(count, dtype));
}

static ddp_backend_status all_reduce(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                     ddp_backend_reduce_op op, uint32_t tag, int64_t timeout_ms,
                                     ddp_backend_error* error) {
  (void)tag; /* all ranks call a communicator's collectives in the same order, which is all that MPI needs */
  return reduce_to(group, data, count, dtype, op, -1, timeout_ms, error);
}

static ddp_backend_status reduce(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                 ddp_backend_reduce_op op, int32_t root, uint32_t tag, int64_t timeout_ms,
                                 ddp_backend_error* error) {
  (void)tag;
  return reduce_to(group, data, count, dtype, op, root, timeout_ms, error);
}

static ddp_backend_status broadcast(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                    int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error* error) {
  (void)tag;
  const size_t bytes = in_bytes(count, dtype);
  unsigned char* const memory = memory_for(bytes, group->rank == root ? data : NULL);
  if (memory == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  MPI_Datatype type = bytes_type(bytes);
  MPI_Request request;
  const int started = MPI_Ibcast(memory, 1, type, root, group->collectives, &request);
  MPI_Type_free(&type);
  return take(finish(group, "MPI_Ibcast", started, &request, MPI_STATUS_IGNORE, timeout_ms, error), memory, data,
              bytes);
}

/* The collectives in which each rank has a part of equal size: an input of `in` bytes, an output of `out`. */
typedef int (*start_function)(const void* input, MPI_Datatype part, void* output, int root, MPI_Comm comm,
                              MPI_Request* request);

static int start_all_gather(const void* input, MPI_Datatype part, void* output, int root, MPI_Comm comm,
                            MPI_Request* request) {
  (void)root;
  return MPI_Iallgather(input, 1, part, output, 1, part, comm, request);
}
static int start_gather(const void* input, MPI_Datatype part, void* output, int root, MPI_Comm comm,
                        MPI_Request* request) {
  return MPI_Igather(input, 1, part, output, 1, part, root, comm, request);
}
static int start_scatter(const void* input, MPI_Datatype part, void* output, int root, MPI_Comm comm,
                         MPI_Request* request) {
  return MPI_Iscatter(input, 1, part, output, 1, part, root, comm, request);
}

static ddp_backend_status exchange(ddp_backend_group* group, start_function start, const char* function,
                                   const void* input, size_t in, void* output, size_t out, size_t part, int root,
                                   int64_t timeout_ms, ddp_backend_error* error) {
  unsigned char* const memory = memory_with_input(input, in, out);
  if (memory == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  MPI_Datatype type = bytes_type(part);
  MPI_Request request;
  const int started = start(memory + input_place(out), type, memory, root, group->collectives, &request);
  MPI_Type_free(&type);
  return take(finish(group, function, started, &request, MPI_STATUS_IGNORE, timeout_ms, error), memory, output, out);
}

static ddp_backend_status all_gather(ddp_backend_group* group, const void* input, void* output, size_t count,
                                     ddp_backend_dtype dtype, uint32_t tag, int64_t timeout_ms,
                                     ddp_backend_error* error) {
  (void)tag;
  const size_t part = in_bytes(count, dtype), all = part * (size_t)group->size;
  return exchange(group, &start_all_gather, "MPI_Iallgather", input, part, output, all, part, 0, timeout_ms, error);
}

static ddp_backend_status gather(ddp_backend_group* group, const void* input, void* output, size_t count,
                                 ddp_backend_dtype dtype, int32_t root, uint32_t tag, int64_t timeout_ms,
                                 ddp_backend_error* error) {
  (void)tag;
  const size_t part = in_bytes(count, dtype), all = group->rank == root ? part * (size_t)group->size : 0;
  return exchange(group, &start_gather, "MPI_Igather", input, part, output, all, part, root, timeout_ms, error);
}

static ddp_backend_status scatter(ddp_backend_group* group, const void* input, void* output, size_t count,
                                  ddp_backend_dtype dtype, int32_t root, uint32_t tag, int64_t timeout_ms,
                                  ddp_backend_error* error) {
  (void)tag;
  const size_t part = in_bytes(count, dtype), all = group->rank == root ? part * (size_t)group->size : 0;
  return exchange(group, &start_scatter, "MPI_Iscatter", input, all, output, part, part, root, timeout_ms, error);
}

/* Reduces the whole input and keeps this rank's part: MPI's own function counts the whole input in int. */
static ddp_backend_status reduce_scatter(ddp_backend_group* group, const void* input, void* output, size_t count,
                                         ddp_backend_dtype dtype, ddp_backend_reduce_op op, uint32_t tag,
                                         int64_t timeout_ms, ddp_backend_error* error) {
  (void)tag;
  const size_t part = in_bytes(count, dtype), all = part * (size_t)group->size;
  unsigned char* const whole = memory_for(all, input);
  if (whole == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  const ddp_backend_status status =
      reduce_to(group, whole, count * (size_t)group->size, dtype, op, -1, timeout_ms, error);
  if (status == DDP_BACKEND_OK && part > 0) memcpy(output, whole + part * (size_t)group->rank, part);
  free(whole); /* MPI has worked on a copy */
  return status;
}

/* Returns the bytes of all parts, or SIZE_MAX if they are more than MPI can count in such an operation. */
static size_t lay_out(const size_t* counts, int size, ddp_backend_dtype dtype, int* bytes, int* places) {
  size_t all = 0;
  for (int r = 0; r < size; ++r) {
    places[r] = (int)all;
    bytes[r] = (int)in_bytes(counts[r], dtype);
    all += in_bytes(counts[r], dtype);
    if (all > INT_MAX) return SIZE_MAX;
  }
  return all;
}

static ddp_backend_status all_to_all(ddp_backend_group* group, const void* input, const size_t* input_counts,
                                     void* output, const size_t* output_counts, ddp_backend_dtype dtype, uint32_t tag,
                                     int64_t timeout_ms, ddp_backend_error* error) {
  (void)tag;
  int* const numbers = malloc(4 * (size_t)group->size * sizeof(int));
  if (numbers == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  int *const in_sizes = numbers, *const in_places = in_sizes + group->size;
  int *const out_sizes = in_places + group->size, *const out_places = out_sizes + group->size;
  const size_t in = lay_out(input_counts, group->size, dtype, in_sizes, in_places);
  const size_t out = lay_out(output_counts, group->size, dtype, out_sizes, out_places);
  if (in == SIZE_MAX || out == SIZE_MAX) {
    free(numbers);
    return fail(error, DDP_BACKEND_UNSUPPORTED, "an all_to_all of 2 GiB or more on one rank; give it in parts");
  }
  unsigned char* const memory = memory_with_input(input, in, out);
  if (memory == NULL) {
    free(numbers);
    return fail(error, DDP_BACKEND_ERROR, "out of memory");
  }
  MPI_Request request;
  const int started = MPI_Ialltoallv(memory + input_place(out), in_sizes, in_places, MPI_BYTE, memory, out_sizes,
                                     out_places, MPI_BYTE, group->collectives, &request);
  const ddp_backend_status status =
      finish(group, "MPI_Ialltoallv", started, &request, MPI_STATUS_IGNORE, timeout_ms, error);
  if (status == DDP_BACKEND_OK) free(numbers); /* else MPI may still read them */
  return take(status, memory, output, out);
}

static ddp_backend_status all_gatherv(ddp_backend_group* group, const void* input, void* output, const size_t* counts,
                                      ddp_backend_dtype dtype, uint32_t tag, int64_t timeout_ms,
                                      ddp_backend_error* error) {
  (void)tag;
  int* const numbers = malloc(2 * (size_t)group->size * sizeof(int));
  if (numbers == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  int *const sizes = numbers, *const places = sizes + group->size;
  const size_t out = lay_out(counts, group->size, dtype, sizes, places);
  if (out == SIZE_MAX) {
    free(numbers);
    return fail(error, DDP_BACKEND_UNSUPPORTED, "an uneven all_gather of 2 GiB or more; give it in parts");
  }
  const size_t in = in_bytes(counts[group->rank], dtype);
  unsigned char* const memory = memory_with_input(input, in, out);
  if (memory == NULL) {
    free(numbers);
    return fail(error, DDP_BACKEND_ERROR, "out of memory");
  }
  MPI_Request request;
  const int started = MPI_Iallgatherv(memory + input_place(out), (int)in, MPI_BYTE, memory, sizes, places, MPI_BYTE,
                                      group->collectives, &request);
  const ddp_backend_status status =
      finish(group, "MPI_Iallgatherv", started, &request, MPI_STATUS_IGNORE, timeout_ms, error);
  if (status == DDP_BACKEND_OK) free(numbers);
  return take(status, memory, output, out);
}

static ddp_backend_status barrier(ddp_backend_group* group, uint32_t tag, int64_t timeout_ms,
                                  ddp_backend_error* error) {
  (void)tag;
  MPI_Request request;
  const int started = MPI_Ibarrier(group->collectives, &request);
  return finish(group, "MPI_Ibarrier", started, &request, MPI_STATUS_IGNORE, timeout_ms, error);
}

/* ---- Messages ---- */

static ddp_backend_status start_message(ddp_backend_group* group, const void* data, void* output, size_t bytes,
                                        int peer, uint64_t tag, ddp_backend_message** out, ddp_backend_error* error) {
  ddp_backend_message* const message = calloc(1, sizeof *message);
  unsigned char* const memory = memory_for(bytes, data);
  if (message == NULL || memory == NULL) {
    free(message);
    free(memory);
    return fail(error, DDP_BACKEND_ERROR, "out of memory");
  }
  *message = (ddp_backend_message){.peer = peer, .memory = memory, .output = output, .bytes = bytes};
  const MPI_Comm comm = group->messages[(tag >> kTagBits) % kMessageComms];
  const int mpi_tag = (int)(tag & (((uint64_t)1 << kTagBits) - 1));
  MPI_Datatype type = bytes_type(bytes);
  const int started = data != NULL || output == NULL
                          ? MPI_Isend(memory, 1, type, peer, mpi_tag, comm, &message->request)
                          : MPI_Irecv(memory, 1, type, peer, mpi_tag, comm, &message->request);
  MPI_Type_free(&type);
  if (started != MPI_SUCCESS) {
    free(memory);
    free(message);
    return mpi_failed(error, "starting a message", started);
  }
  *out = message;
  return DDP_BACKEND_OK;
}

static ddp_backend_status send(ddp_backend_group* group, const void* data, size_t bytes, int32_t peer, uint64_t tag,
                               ddp_backend_message** out, ddp_backend_error* error) {
  return start_message(group, data, NULL, bytes, peer, tag, out, error);
}

static ddp_backend_status receive(ddp_backend_group* group, void* data, size_t bytes, int32_t peer, uint64_t tag,
                                  ddp_backend_message** out, ddp_backend_error* error) {
  static char nothing;
  const int source = peer == DDP_BACKEND_ANY_RANK ? MPI_ANY_SOURCE : peer;
  return start_message(group, NULL, data != NULL ? data : &nothing, bytes, source, tag, out, error);
}

static ddp_backend_status message_wait(ddp_backend_group* group, ddp_backend_message* message, int64_t timeout_ms,
                                       int32_t* peer, ddp_backend_error* error) {
  MPI_Status from;
  const ddp_backend_status status =
      finish(group, "waiting for a message", MPI_SUCCESS, &message->request, &from, timeout_ms, error);
  if (status != DDP_BACKEND_OK) return status;
  message->has_ended = true;
  if (message->output != NULL && message->bytes > 0) memcpy(message->output, message->memory, message->bytes);
  *peer = message->output != NULL ? from.MPI_SOURCE : message->peer;
  return DDP_BACKEND_OK;
}

static void message_free(ddp_backend_message* message) {
  if (message->has_ended) free(message->memory);
  free(message);
}

/* ---- Groups ---- */

static atomic_bool leaves_something; /* an operation was given up: MPI_Finalize would wait for it */

static void end_mpi(void) {
  if (!atomic_load(&leaves_something)) MPI_Finalize();
}

/* Starts MPI, unless the program has. Its threads must not take signals that are meant for the program. */
static ddp_backend_status start_mpi(ddp_backend_error* error) {
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&once);
  static bool is_ready;
  int is_running = 0, level = MPI_THREAD_SINGLE, code = MPI_SUCCESS;
  MPI_Initialized(&is_running);
  if (is_running) {
    MPI_Query_thread(&level);
  } else {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == MPI_SUCCESS) {
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
      atexit(&end_mpi);
    }
  }
  for (int i = 0; code == MPI_SUCCESS && !is_ready && i < kReductions; ++i) {
    code = MPI_Op_create(reductions[i].on_integers, 1, &integer_ops[i]);
  }
  is_ready = code == MPI_SUCCESS;
  pthread_mutex_unlock(&once);
  if (code != MPI_SUCCESS) return mpi_failed(error, "starting MPI", code);
  if (level < MPI_THREAD_MULTIPLE) {
    return fail(error, DDP_BACKEND_ERROR, "this MPI, or the program's MPI_Init, does not allow MPI_THREAD_MULTIPLE");
  }
  return DDP_BACKEND_OK;
}

/* What the ranks of a group tell each other through the store. */
typedef struct member {
  int world_rank, world_size; /* in MPI_COMM_WORLD */
} member;

typedef struct value {
  char text[MPI_MAX_PORT_NAME];
} value;

static void copy_value(void* sink, const void* bytes, size_t size) {
  value* const to = sink;
  if (size >= sizeof to->text) size = sizeof to->text - 1;
  memcpy(to->text, bytes, size);
  to->text[size] = '\0';
}

static int put(const ddp_backend_store* store, const char* key, int number, const char* text,
               ddp_backend_error* error) {
  char name[64];
  snprintf(name, sizeof name, "mpi/%s/%d", key, number);
  return store->set(store->context, name, text, strlen(text), error);
}

static int get(const ddp_backend_store* store, const char* key, int number, int64_t deadline, value* out,
               ddp_backend_error* error) {
  char name[64];
  snprintf(name, sizeof name, "mpi/%s/%d", key, number);
  const int64_t left = deadline - now_ms();
  return store->get(store->context, name, left > 1 ? left : 1, out, &copy_value, error);
}

/* Learns who the members are. They are all in one world (*is_one_world), or each is alone in its own. */
static ddp_backend_status meet(const ddp_backend_group_config* config, int64_t deadline, int* world_ranks,
                               bool* is_one_world, ddp_backend_error* error) {
  member own;
  MPI_Comm_rank(MPI_COMM_WORLD, &own.world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &own.world_size);
  value text;
  snprintf(text.text, sizeof text.text, "%d of %d", own.world_rank, own.world_size);
  if (put(&config->store, "member", config->rank, text.text, error) != 0) return DDP_BACKEND_ERROR;
  *is_one_world = own.world_size > 1;
  for (int r = 0; r < config->size; ++r) {
    member other;
    if (get(&config->store, "member", r, deadline, &text, error) != 0) return DDP_BACKEND_TIMEOUT;
    if (sscanf(text.text, "%d of %d", &other.world_rank, &other.world_size) != 2 ||
        other.world_size != own.world_size) {
      return fail(error, DDP_BACKEND_ERROR,
                  "the ranks are in MPI worlds of different sizes: start all with one mpirun");
    }
    world_ranks[r] = other.world_rank;
    for (int before = 0; *is_one_world && before < r; ++before) {
      if (world_ranks[before] == world_ranks[r]) {
        return fail(error, DDP_BACKEND_ERROR, "two ranks are the same in MPI_COMM_WORLD: start all with one mpirun");
      }
    }
  }
  return DDP_BACKEND_OK;
}

/* Joins ranks that are alone in their worlds, one after the other: those before rank r, together, accept r. */
static ddp_backend_status join(const ddp_backend_group_config* config, int64_t deadline, MPI_Comm* comm,
                               ddp_backend_error* error) {
  static const char help[] =
      "ranks that mpirun has not started meet through a name server: start Open MPI's with `ompi-server -r FILE`, and "
      "set OMPI_MCA_pmix_server_uri=file:FILE for all ranks";
  value port = {""};
  int code = MPI_Comm_dup(MPI_COMM_SELF, comm);
  if (code == MPI_SUCCESS && config->rank == 0) code = MPI_Open_port(MPI_INFO_NULL, port.text);
  if (code != MPI_SUCCESS) return mpi_failed(error, "MPI_Open_port", code);
  for (int r = 1; r < config->size && code == MPI_SUCCESS; ++r) {
    if (r < config->rank) continue; /* not this rank's turn yet */
    MPI_Comm both, merged;
    /* The port's name is left for each rank in its turn. */
    if (config->rank == 0 && put(&config->store, "port", r, port.text, error) != 0) return DDP_BACKEND_ERROR;
    if (config->rank == r) {
      if (get(&config->store, "port", r, deadline, &port, error) != 0) return DDP_BACKEND_TIMEOUT;
      code = MPI_Comm_connect(port.text, MPI_INFO_NULL, 0, MPI_COMM_SELF, &both);
    } else {
      code = MPI_Comm_accept(port.text, MPI_INFO_NULL, 0, *comm, &both);
    }
    if (code != MPI_SUCCESS) break;
    MPI_Intercomm_merge(both, config->rank == r, &merged);
    MPI_Comm_free(&both);
    MPI_Comm_free(comm);
    *comm = merged;
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
  if (config->rank == 0) MPI_Close_port(port.text);
  return code == MPI_SUCCESS ? DDP_BACKEND_OK : fail(error, DDP_BACKEND_ERROR, help);
}

static ddp_backend_status connect_ranks(const ddp_backend_group_config* config, MPI_Comm* comm,
                                        ddp_backend_error* error) {
  const int64_t deadline = now_ms() + config->init_timeout_ms;
  bool is_one_world = false;
  int* const world_ranks = malloc((size_t)config->size * sizeof(int));
  if (world_ranks == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  ddp_backend_status status = meet(config, deadline, world_ranks, &is_one_world, error);
  if (status == DDP_BACKEND_OK && is_one_world) {
    MPI_Group world, members;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, config->size, world_ranks, &members);
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, comm);
    if (code != MPI_SUCCESS) status = mpi_failed(error, "MPI_Comm_create_group", code);
    MPI_Group_free(&members);
    MPI_Group_free(&world);
  } else if (status == DDP_BACKEND_OK) {
    status = join(config, deadline, comm, error);
  }
  free(world_ranks);
  return status;
}

static void group_destroy(ddp_backend_group* group) {
  if (!atomic_load(&group->aborted)) { /* else operations in flight may still use them */
    for (int i = 0; i < kMessageComms; ++i) {
      if (group->messages[i] != MPI_COMM_NULL) MPI_Comm_free(&group->messages[i]);
    }
    if (group->collectives != MPI_COMM_NULL) MPI_Comm_free(&group->collectives);
  }
  free(group);
}

static void group_abort(ddp_backend_group* group) {
  atomic_store(&leaves_something, true);
  atomic_store(&group->aborted, true);
}

static ddp_backend_status group_create(const ddp_backend_group_config* config, ddp_backend_group** out,
                                       ddp_backend_error* error) {
  ddp_backend_status status = start_mpi(error);
  if (status != DDP_BACKEND_OK) return status;
  ddp_backend_group* const group = malloc(sizeof *group);
  if (group == NULL) return fail(error, DDP_BACKEND_ERROR, "out of memory");
  group->rank = config->rank;
  group->size = config->size;
  group->collectives = MPI_COMM_NULL;
  for (int i = 0; i < kMessageComms; ++i) group->messages[i] = MPI_COMM_NULL;
  atomic_init(&group->aborted, false);

  status = connect_ranks(config, &group->collectives, error);
  int code = MPI_SUCCESS;
  if (status == DDP_BACKEND_OK) MPI_Comm_set_errhandler(group->collectives, MPI_ERRORS_RETURN);
  for (int i = 0; status == DDP_BACKEND_OK && code == MPI_SUCCESS && i < kMessageComms; ++i) {
    code = MPI_Comm_dup(group->collectives, &group->messages[i]);
  }
  if (code != MPI_SUCCESS) status = mpi_failed(error, "MPI_Comm_dup", code);
  if (status != DDP_BACKEND_OK) {
    group_abort(group); /* the others may wait in MPI */
    group_destroy(group);
    return status;
  }
  *out = group;
  return DDP_BACKEND_OK;
}

static const ddp_backend_table table = {
    .abi_version = DDP_BACKEND_ABI_VERSION,
    .struct_size = sizeof(ddp_backend_table),
    .name = "mpi",
    .group_create = &group_create,
    .group_destroy = &group_destroy,
    .group_abort = &group_abort,
    .all_reduce = &all_reduce,
    .reduce = &reduce,
    .broadcast = &broadcast,
    .all_gather = &all_gather,
    .gather = &gather,
    .scatter = &scatter,
    .reduce_scatter = &reduce_scatter,
    .all_to_all = &all_to_all,
    .barrier = &barrier,
    .all_gatherv = &all_gatherv,
    .send = &send,
    .receive = &receive,
    .message_wait = &message_wait,
    .message_free = &message_free,
};

__attribute__((visibility("default"))) const ddp_backend_table* ddp_backend_open(uint32_t abi_version);
const ddp_backend_table* ddp_backend_open(uint32_t abi_version) {
  return abi_version == DDP_BACKEND_ABI_VERSION ? &table : NULL;
}
