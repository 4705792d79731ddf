/* SPDX-License-Identifier: BSD-3-Clause
 * The backend table: what a module such as libddp_gloo.so offers to libddp.
 *
 * A backend is a shared object that exports one function, ddp_backend_open, which returns a table of C functions.
 * libddp opens it with RTLD_LOCAL | RTLD_DEEPBIND, so that its Gloo and libtorch's never share a symbol table. The
 * same table is the plug-in interface for other backends. Only C types cross it.
 *
 * Threads: one thread at a time may be inside the collectives of a group, any number inside its messages. abort may be
 * called from any other thread at any time and makes running calls fail soon. A group is single-use after an error.
 * Threads that a backend starts block asynchronous signals; a backend leaves the caller's signal mask alone. Errors: a
 * function returns DDP_BACKEND_OK, or another status after writing a NUL-terminated text into error.
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
  DDP_BACKEND_UNSUPPORTED = 4, /* this backend lacks the type or the operation */
  DDP_BACKEND_ERROR = 5        /* anything else */
} ddp_backend_status;

/* Element types and reductions: the values of ddp_dtype and ddp_reduce_op of ddp/ddp.h. In C++: element_types.hpp and
 * reduce_op.hpp. */
typedef int32_t ddp_backend_dtype;
typedef int32_t ddp_backend_reduce_op;

typedef struct ddp_backend_error {
  char text[512];
} ddp_backend_error;

/* The store as a backend sees it. The group's prefix is added to keys. get waits at most timeout_ms for the key and
 * then calls deliver once with the bytes. Both return 0, or nonzero after filling error. */
typedef struct ddp_backend_store {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t size, ddp_backend_error* error);
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* sink,
             void (*deliver)(void* sink, const void* value, size_t size), ddp_backend_error* error);
} ddp_backend_store;

typedef struct ddp_backend_group_config {
  int32_t rank;
  int32_t size;
  const int32_t* job_ranks;  /* ranks to show in error texts; NULL: those of the group */
  const char* local_address; /* numeric address at which the other ranks reach this one */
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

  /* Connects this rank to all others. Blocks until that is done or init_timeout_ms has passed. */
  ddp_backend_status (*group_create)(const ddp_backend_group_config*, ddp_backend_group** out, ddp_backend_error*);
  void (*group_destroy)(ddp_backend_group*);
  /* Makes calls of other threads fail with DDP_BACKEND_ABORTED, and keeps messages in flight from touching memory from
   * then on. Idempotent; does not block long. */
  void (*group_abort)(ddp_backend_group*);

  /* Collectives on host memory. tag is equal on all ranks and distinct among operations in flight. A function that a
   * backend lacks is NULL here; for a type or a reduction that it lacks, a function returns DDP_BACKEND_UNSUPPORTED.
   *
   * all_reduce, broadcast: data is replaced by the result. reduce: root's data is replaced by the result, the other
   * ranks' data is scratch. all_gather, gather: output (gather: root's only) holds size * count elements, rank r's
   * contribution at r * count. scatter: root's input has that layout. reduce_scatter: every input has that layout, and
   * output receives the count elements of this rank. all_to_all: input_counts[r] elements go to rank r and
   * output_counts[r] come from it, both laid out in the order of ranks; sender and receiver must agree on the counts.
   */
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
  /* An all_gather in which rank r contributes counts[r] elements; output holds them one after the other. */
  ddp_backend_status (*all_gatherv)(ddp_backend_group*, const void* input, void* output, const size_t* counts,
                                    ddp_backend_dtype, uint32_t tag, int64_t timeout_ms, ddp_backend_error*);

  /* Messages of `bytes` bytes, a number that sender and receiver must agree on. The host memory must stay valid until
   * message_wait has returned. tag is below 2^40; messages between one pair of ranks with one tag arrive in the order
   * sent. Both functions start the message and do not block. The peer of receive is a rank or DDP_BACKEND_ANY_RANK; a
   * receive from any rank may fail to notice that a rank has died. */
  ddp_backend_status (*send)(ddp_backend_group*, const void* data, size_t bytes, int32_t peer, uint64_t tag,
                             ddp_backend_message** out, ddp_backend_error*);
  ddp_backend_status (*receive)(ddp_backend_group*, void* data, size_t bytes, int32_t peer, uint64_t tag,
                                ddp_backend_message** out, ddp_backend_error*);
  /* Blocks until the message has left its memory or arrived in it. *peer is set to the other rank. One thread waits for
   * a message. */
  ddp_backend_status (*message_wait)(ddp_backend_group*, ddp_backend_message*, int64_t timeout_ms, int32_t* peer,
                                     ddp_backend_error*);
  /* Frees a message that has ended, or any message once the group was aborted. */
  void (*message_free)(ddp_backend_message*);
} ddp_backend_table;

/* The one symbol a backend module exports. Returns NULL if it cannot serve this ABI version. */
typedef const ddp_backend_table* (*ddp_backend_open_function)(uint32_t abi_version);
#define DDP_BACKEND_OPEN_SYMBOL "ddp_backend_open"

#ifdef __cplusplus
}
#endif
#endif
