/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The backend table: what a plug-in gives libddp to carry out collectives, as libddp_gloo.so does.
 *
 * A backend called NAME is a shared object, libddp_NAME.so, that exports one function, ddp_backend_open(), which
 * returns a table of C functions. `init_process_group({.backend = "NAME"})` opens it with RTLD_LOCAL | RTLD_DEEPBIND,
 * so that its libraries and those of the program do not meet; it is looked for in the folder DDP_BACKEND_PATH, and next
 * to libddp.so. Only C types cross the table. apps/examples/page_backend.c is one in a page, docs/library/backends.md
 * explains it.
 *
 * Threads: one thread at a time is inside the collectives of a group, any number inside its messages. group_abort() may
 * be called from any other thread at any time and makes running calls fail soon. Threads that a backend starts block
 * asynchronous signals; a backend leaves the caller's signal mask alone.
 *
 * Errors: a function returns DDP_BACKEND_OK, or another status after writing a text into *error. A group is single-use
 * after an error: libddp aborts it, and destroys it.
 */
#ifndef DDP_BACKEND_H
#define DDP_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this header. A backend refuses any other in ddp_backend_open(). */
#define DDP_BACKEND_ABI_VERSION 3

/** Result of a call. */
typedef enum ddp_backend_status {
  DDP_BACKEND_OK = 0,          /**< the call did what it says */
  DDP_BACKEND_TIMEOUT = 1,     /**< the deadline passed */
  DDP_BACKEND_PEER_LOST = 2,   /**< a connection to another rank broke */
  DDP_BACKEND_ABORTED = 3,     /**< group_abort() was called */
  DDP_BACKEND_UNSUPPORTED = 4, /**< this backend lacks the type or the operation */
  DDP_BACKEND_ERROR = 5        /**< anything else */
} ddp_backend_status;

/** Type of elements: a ddp_dtype. Reductions get DDP_FLOAT16 and DDP_BFLOAT16 only if the backend says that it has
 * DDP_BACKEND_REDUCES_16_BIT; otherwise libddp widens them first. */
typedef int32_t ddp_backend_dtype;
/** Reduction: a ddp_reduce_op, but neither DDP_AVG nor DDP_PREMUL_SUM: libddp scales, and asks for a sum. */
typedef int32_t ddp_backend_reduce_op;

/** Text of an error. */
typedef struct ddp_backend_error {
  char text[512]; /**< UTF-8 that ends with NUL: what failed and why; libddp adds group, operation and rank */
} ddp_backend_error;

/** The store as a backend sees it. libddp adds the group's prefix to keys. Both functions return 0, or another value
 * after filling *error. */
typedef struct ddp_backend_store {
  void* context; /**< passed to both functions unchanged */
  /** Stores `size` bytes under the key. */
  int (*set)(void* context, const char* key, const void* value, size_t size, ddp_backend_error* error);
  /** Waits at most timeout_ms for the key, then calls deliver(sink, ...) once with its bytes. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* sink,
             void (*deliver)(void* sink, const void* value, size_t size), ddp_backend_error* error);
} ddp_backend_store;

/** What a backend is given to make a group. Valid during group_create only. */
typedef struct ddp_backend_group_config {
  int32_t rank;              /**< this process in the group */
  int32_t size;              /**< ranks in the group, at least 1 */
  const int32_t* job_ranks;  /**< `size` ranks to show in error texts; NULL: those of the group */
  const char* local_address; /**< numeric address at which the other ranks reach this one */
  int64_t init_timeout_ms;   /**< for connecting all ranks to each other */
  ddp_backend_store store;   /**< where the ranks of the group leave each other addresses and the like */
} ddp_backend_group_config;

/** A group of this process, defined by the backend. */
typedef struct ddp_backend_group ddp_backend_group;
/** A message under way, defined by the backend. */
typedef struct ddp_backend_message ddp_backend_message;

/** Feature of a backend: it reduces 16-bit floating point in 32 bits, and rounds the result once. */
#define DDP_BACKEND_REDUCES_16_BIT UINT64_C(1)
/** Feature of a backend: a message may be waited for again after message_wait() returned DDP_BACKEND_TIMEOUT, which is
 * then no error of the group, and with timeout_ms 0 message_wait() does not block. */
#define DDP_BACKEND_POLLS_MESSAGES UINT64_C(2)

/** Peer of a receive that takes a message from any rank. */
#define DDP_BACKEND_ANY_RANK (-1)

/**
 * The functions of a backend.
 *
 * Collectives work on host memory. `tag` is equal on all ranks and distinct among operations in flight. `count` is in
 * elements; timeout_ms is at least 1. A function that a backend lacks is NULL, and one returns DDP_BACKEND_UNSUPPORTED
 * for a type or reduction that it lacks.
 */
typedef struct ddp_backend_table {
  uint32_t abi_version; /**< DDP_BACKEND_ABI_VERSION */
  uint32_t struct_size; /**< sizeof(ddp_backend_table): later versions only append */
  const char* name;     /**< such as "gloo" */

  /** Connects this rank to all others of the group. Blocks until that is done or init_timeout_ms has passed. */
  ddp_backend_status (*group_create)(const ddp_backend_group_config* config, ddp_backend_group** out,
                                     ddp_backend_error* error);
  /** Frees the group. None of its calls is running. */
  void (*group_destroy)(ddp_backend_group* group);
  /** Makes calls of other threads fail with DDP_BACKEND_ABORTED, and keeps messages in flight from touching memory from
   * then on. Idempotent; does not block long. */
  void (*group_abort)(ddp_backend_group* group);

  /** Replaces data by its reduction over all ranks. */
  ddp_backend_status (*all_reduce)(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                   ddp_backend_reduce_op op, uint32_t tag, int64_t timeout_ms,
                                   ddp_backend_error* error);
  /** Replaces root's data by the reduction over all ranks. The other ranks' data is scratch. */
  ddp_backend_status (*reduce)(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                               ddp_backend_reduce_op op, int32_t root, uint32_t tag, int64_t timeout_ms,
                               ddp_backend_error* error);
  /** Replaces data by root's. */
  ddp_backend_status (*broadcast)(ddp_backend_group* group, void* data, size_t count, ddp_backend_dtype dtype,
                                  int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error* error);
  /** Gathers `count` elements of every rank on all ranks: rank r's are at output + r * count. */
  ddp_backend_status (*all_gather)(ddp_backend_group* group, const void* input, void* output, size_t count,
                                   ddp_backend_dtype dtype, uint32_t tag, int64_t timeout_ms, ddp_backend_error* error);
  /** Gathers as all_gather does, on root. The others' output is NULL or ignored. */
  ddp_backend_status (*gather)(ddp_backend_group* group, const void* input, void* output, size_t count,
                               ddp_backend_dtype dtype, int32_t root, uint32_t tag, int64_t timeout_ms,
                               ddp_backend_error* error);
  /** Gives rank r the `count` elements at root's input + r * count. The others' input is NULL or ignored. */
  ddp_backend_status (*scatter)(ddp_backend_group* group, const void* input, void* output, size_t count,
                                ddp_backend_dtype dtype, int32_t root, uint32_t tag, int64_t timeout_ms,
                                ddp_backend_error* error);
  /** Reduces inputs of size * count elements, and gives rank r the `count` elements from r * count. */
  ddp_backend_status (*reduce_scatter)(ddp_backend_group* group, const void* input, void* output, size_t count,
                                       ddp_backend_dtype dtype, ddp_backend_reduce_op op, uint32_t tag,
                                       int64_t timeout_ms, ddp_backend_error* error);
  /** Sends input_counts[r] elements to rank r and receives output_counts[r] from it, both laid out in the order of
   * ranks. Sender and receiver must agree on the counts. */
  ddp_backend_status (*all_to_all)(ddp_backend_group* group, const void* input, const size_t* input_counts,
                                   void* output, const size_t* output_counts, ddp_backend_dtype dtype, uint32_t tag,
                                   int64_t timeout_ms, ddp_backend_error* error);
  /** Blocks until all ranks have called it. */
  ddp_backend_status (*barrier)(ddp_backend_group* group, uint32_t tag, int64_t timeout_ms, ddp_backend_error* error);
  /** Gathers counts[r] elements of each rank r on all ranks, one rank's after the other's. */
  ddp_backend_status (*all_gatherv)(ddp_backend_group* group, const void* input, void* output, const size_t* counts,
                                    ddp_backend_dtype dtype, uint32_t tag, int64_t timeout_ms,
                                    ddp_backend_error* error);

  /** Starts a message of `bytes` bytes to a rank, without blocking. The receiver must expect as many. The memory stays
   * valid until message_wait has returned. tag is below 2^34; messages between one pair of ranks with one tag arrive in
   * the order sent. */
  ddp_backend_status (*send)(ddp_backend_group* group, const void* data, size_t bytes, int32_t peer, uint64_t tag,
                             ddp_backend_message** out, ddp_backend_error* error);
  /** Starts receiving a message from a rank, or from DDP_BACKEND_ANY_RANK, without blocking. A receive from any rank
   * may fail to notice that a rank has died. */
  ddp_backend_status (*receive)(ddp_backend_group* group, void* data, size_t bytes, int32_t peer, uint64_t tag,
                                ddp_backend_message** out, ddp_backend_error* error);
  /** Blocks until the message has left its memory or arrived in it, and sets *peer to the other rank. One thread waits
   * for a message. */
  ddp_backend_status (*message_wait)(ddp_backend_group* group, ddp_backend_message* message, int64_t timeout_ms,
                                     int32_t* peer, ddp_backend_error* error);
  /** Frees a message. A message that has not ended is freed only if the group was aborted, or is destroyed next. */
  void (*message_free)(ddp_backend_message* message);

  /* What follows is absent from tables whose struct_size ends here. */

  /** What the backend does by itself: a sum of values such as DDP_BACKEND_REDUCES_16_BIT. */
  uint64_t features;

  /** Optional, NULL or absent: gives every rank `bytes` bytes of zeroed memory with which this group's collectives are
   * faster. A collective: all ranks pass the same size, and if one of them fails, all do. */
  ddp_backend_status (*allocate)(ddp_backend_group* group, size_t bytes, uint32_t tag, int64_t timeout_ms, void** out,
                                 ddp_backend_error* error);
  /** Frees memory of allocate(). No operation that uses it is in flight. Ranks need not do it together. */
  void (*release)(ddp_backend_group* group, void* memory);
} ddp_backend_table;

/** Type of ddp_backend_open(), the one function that a backend exports. It returns NULL if it does not know this
 * version of the table. */
typedef const ddp_backend_table* (*ddp_backend_open_function)(uint32_t abi_version);
/** Name of that function. */
#define DDP_BACKEND_OPEN_SYMBOL "ddp_backend_open"

#ifdef __cplusplus
}
#endif
#endif
