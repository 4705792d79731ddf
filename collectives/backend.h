/* SPDX-License-Identifier: BSD-3-Clause
 * The backend table: what a module such as libddp_gloo.so offers to libddp.
 *
 * A backend is a shared object that exports one function, ddp_backend_open, returning a table of C functions. It is
 * opened with RTLD_LOCAL | RTLD_DEEPBIND, so that its Gloo never meets libtorch's Gloo in one symbol table. The same
 * table is the plug-in interface for other backends. Nothing but C types crosses it.
 *
 * Threads: one thread at a time may be inside the collectives of a group, any number inside its messages; abort may be
 * called from any other thread at any time, and makes what is running fail soon. A group is single-use after an error.
 * Threads that a backend starts block asynchronous signals; the caller's mask is its own while it waits. Errors: a
 * function returns DDP_BACKEND_OK or another status and then writes a NUL-terminated text into error.
 */
#ifndef DDP_COLLECTIVES_BACKEND_H
#define DDP_COLLECTIVES_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_BACKEND_ABI_VERSION 3

typedef enum ddp_backend_status {
  DDP_BACKEND_OK = 0,
  DDP_BACKEND_TIMEOUT = 1,     /* the deadline passed */
  DDP_BACKEND_PEER_LOST = 2,   /* a connection to another rank broke */
  DDP_BACKEND_ABORTED = 3,     /* abort() was called */
  DDP_BACKEND_UNSUPPORTED = 4, /* this backend cannot do that (type, operation) */
  DDP_BACKEND_ERROR = 5        /* anything else */
} ddp_backend_status;

/* Element types and reductions: the values of ddp_dtype and ddp_reduce_op of ddp/ddp.h. In C++: element_types.hpp and
 * reduce_op.hpp. */
typedef int32_t ddp_backend_dtype;
typedef int32_t ddp_backend_reduce_op;

typedef struct ddp_backend_error {
  char text[512];
} ddp_backend_error;

/* The store as a backend sees it. Keys are already prefixed per group. get waits at most timeout_ms for the key; it
 * calls deliver once with the bytes. Both return 0, or nonzero after filling error. */
typedef struct ddp_backend_store {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t size, ddp_backend_error* error);
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* sink,
             void (*deliver)(void* sink, const void* value, size_t size), ddp_backend_error* error);
} ddp_backend_store;

typedef struct ddp_backend_group_config {
  int32_t rank;
  int32_t size;
  const int32_t* job_ranks;  /* what the ranks are called in texts; NULL: as in the group */
  const char* local_address; /* numeric address that the other ranks can reach */
  int64_t init_timeout_ms;   /* for connecting all ranks to each other */
  ddp_backend_store store;   /* valid during group_create only */
} ddp_backend_group_config;

typedef struct ddp_backend_group ddp_backend_group;
typedef struct ddp_backend_message ddp_backend_message;

#define DDP_BACKEND_ANY_RANK (-1)

typedef struct ddp_backend_table {
  uint32_t abi_version; /* DDP_BACKEND_ABI_VERSION */
  uint32_t struct_size; /* sizeof(ddp_backend_table): later versions only append */
  const char* name;     /* "gloo" */

  /* Connects this rank with all others; blocks until done or init_timeout_ms passed. */
  ddp_backend_status (*group_create)(const ddp_backend_group_config*, ddp_backend_group** out, ddp_backend_error*);
  void (*group_destroy)(ddp_backend_group*);
  /* Makes what other threads have running fail with DDP_BACKEND_ABORTED, and messages in flight touch no memory any
   * more. Idempotent, does not block long. */
  void (*group_abort)(ddp_backend_group*);

  /* Collectives on host memory. tag: equal on all ranks, distinct among operations in flight. What a backend cannot do
   * is NULL here, or DDP_BACKEND_UNSUPPORTED for a type or a reduction.
   *
   * all_reduce, broadcast: data is replaced by the result. reduce: so is root's, the others' is used up. all_gather,
   * gather: output (gather: root's only) holds size * count elements, rank r's contribution at r * count. scatter:
   * root's input is so laid out. reduce_scatter: so is every input; output has the count elements of this rank.
   * all_to_all: input_counts[r] elements go to rank r, output_counts[r] come from it, laid out in the order of ranks;
   * the counts of sender and receiver must agree. */
  ddp_backend_status (*all_reduce)(ddp_backend_group*, void* data, size_t count, ddp_backend_dtype,
                                   ddp_backend_reduce_op, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*reduce)(ddp_backend_group*, void* data, size_t count, ddp_backend_dtype, ddp_backend_reduce_op,
                               int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*broadcast)(ddp_backend_group*, void* data, size_t count, ddp_backend_dtype, int32_t root,
                                  uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*all_gather)(ddp_backend_group*, const void* input, void* output, size_t count, ddp_backend_dtype,
                                   uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*gather)(ddp_backend_group*, const void* input, void* output, size_t count, ddp_backend_dtype,
                               int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*scatter)(ddp_backend_group*, const void* input, void* output, size_t count, ddp_backend_dtype,
                                int32_t root, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  ddp_backend_status (*reduce_scatter)(ddp_backend_group*, const void* input, void* output, size_t count,
                                       ddp_backend_dtype, ddp_backend_reduce_op, uint32_t tag, int64_t timeout_ms,
                                       ddp_backend_error*);
  ddp_backend_status (*all_to_all)(ddp_backend_group*, const void* input, const size_t* input_counts, void* output,
                                   const size_t* output_counts, ddp_backend_dtype, uint32_t tag, int64_t timeout_ms,
                                   ddp_backend_error*);
  ddp_backend_status (*barrier)(ddp_backend_group*, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);
  /* As all_gather, but rank r contributes counts[r] elements; they lie in output one after the other. */
  ddp_backend_status (*all_gatherv)(ddp_backend_group*, const void* input, void* output, const size_t* counts,
                                    ddp_backend_dtype, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);

  /* Messages of `bytes` bytes, which sender and receiver must agree on; host memory that stays until message_wait has
   * returned. tag: below 2^40; messages of one pair with one tag arrive in the order sent. Both start at once and do
   * not block. peer of receive: a rank or DDP_BACKEND_ANY_RANK; the latter need not notice that a rank has died. */
  ddp_backend_status (*send)(ddp_backend_group*, const void* data, size_t bytes, int32_t peer, uint64_t tag,
                             ddp_backend_message** out, ddp_backend_error*);
  ddp_backend_status (*receive)(ddp_backend_group*, void* data, size_t bytes, int32_t peer, uint64_t tag,
                                ddp_backend_message** out, ddp_backend_error*);
  /* Blocks until the message has left its memory, or is in it. *peer: the other rank. One thread a message. */
  ddp_backend_status (*message_wait)(ddp_backend_group*, ddp_backend_message*, int64_t timeout_ms, int32_t* peer,
                                     ddp_backend_error*);
  /* Of one that ended, or of any once the group was aborted. */
  void (*message_free)(ddp_backend_message*);
} ddp_backend_table;

/* The one symbol a backend module exports. Returns NULL if it cannot serve this ABI version. */
typedef const ddp_backend_table* (*ddp_backend_open_function)(uint32_t abi_version);
#define DDP_BACKEND_OPEN_SYMBOL "ddp_backend_open"

#ifdef __cplusplus
}
#endif
#endif
