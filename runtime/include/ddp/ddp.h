/* SPDX-License-Identifier: BSD-3-Clause
 * libddp's C interface (C99). C++ users take ddp/ddp.hpp, a thin header over this one.
 *
 * Every function that can fail returns a ddp_status; on anything but DDP_OK, ddp_last_error() holds one line for this
 * thread that says what was tried, on what, why it failed and which rank is to blame.
 *
 * Threads: a session, its groups and models may be used from any thread, by one thread at a time per group. All ranks
 * of a group must call the same operations in the same order.
 */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DDP_API __attribute__((visibility("default")))
#else
#define DDP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ddp_status {
  DDP_OK = 0,
  DDP_INVALID_ARGUMENT = 1, /* the caller's input is wrong: a size, a name, a missing variable, calls out of order */
  DDP_TIMEOUT = 2,          /* a deadline passed */
  DDP_PEER_LOST = 3,        /* another rank died or left */
  DDP_ABORTED = 4,          /* the group was aborted by an earlier error */
  DDP_MISMATCH = 5,         /* ranks disagree, for example about a parameter's shape */
  DDP_SYSTEM = 6,           /* the operating system or a backend failed */
  DDP_CORRUPT = 7           /* a file is not what it should be */
} ddp_status;

/* 16-bit floating point is reduced in 32 bits and rounded once, to the nearest, when all contributions are in. */
typedef enum ddp_dtype {
  DDP_FLOAT32 = 0,
  DDP_FLOAT64 = 1,
  DDP_INT32 = 2,
  DDP_INT64 = 3,
  DDP_UINT8 = 4,
  DDP_INT8 = 5,
  DDP_INT16 = 6,
  DDP_UINT16 = 7,
  DDP_UINT32 = 8,
  DDP_UINT64 = 9,
  DDP_FLOAT16 = 10, /* IEEE half */
  DDP_BFLOAT16 = 11 /* the upper half of a float32 */
} ddp_dtype;

typedef enum ddp_reduce_op {
  DDP_SUM = 0, /* integers wrap */
  DDP_AVG = 1, /* each contribution times 1/N, then summed, as PyTorch's DDP does; floating point only */
  DDP_PRODUCT = 2,
  DDP_MIN = 3,
  DDP_MAX = 4,
  DDP_BAND = 5, /* bitwise; integers only */
  DDP_BOR = 6,
  DDP_BXOR = 7,
  DDP_PREMUL_SUM = 8 /* each contribution times its rank's factor, then summed; floating point only */
} ddp_reduce_op;

typedef struct ddp_reduction {
  int32_t op;    /* ddp_reduce_op */
  double factor; /* DDP_PREMUL_SUM: of this rank; else unused */
} ddp_reduction;

typedef enum ddp_device_kind { DDP_CPU = 0, DDP_CUDA = 1 } ddp_device_kind;

typedef struct ddp_device {
  int32_t kind;  /* ddp_device_kind; only DDP_CPU is served by this version */
  int32_t index; /* 0 for the CPU */
} ddp_device;

/* count elements of a type at data. Never owns. */
typedef struct ddp_buffer {
  void* data;
  size_t count;
  int32_t dtype; /* ddp_dtype */
  ddp_device device;
} ddp_buffer;

typedef struct ddp_session ddp_session;
typedef struct ddp_group ddp_group;
typedef struct ddp_model ddp_model;
typedef struct ddp_checkpoint ddp_checkpoint;
typedef struct ddp_store ddp_store;

/* One operation: the group it runs in and its sequence number there. A plain value; dropping it neither waits nor
 * cancels. */
typedef struct ddp_work {
  ddp_group* group;
  uint64_t sequence;
} ddp_work;

/* This thread's text for the last call that failed; never NULL, valid until this thread's next call. */
DDP_API const char* ddp_last_error(void);
/* "0.1.0" */
DDP_API const char* ddp_version(void);
/* Bytes of one element; 0 for an unknown type. */
DDP_API size_t ddp_dtype_size(int32_t dtype);

/* ---- Session: this process's membership in a job ---- */

typedef struct ddp_init_options {
  const char* backend;     /* "gloo"; NULL means "gloo" */
  int64_t init_timeout_ms; /* for finding all other ranks; 0 means 60 s */
  int64_t timeout_ms;      /* for each collective, from issue to end; 0 means 30 min */
} ddp_init_options;

/* Joins the job described by the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ... as ddprun and torchrun
 * set it) and connects to all its ranks. With none of these set the process is a world of its own. Under a launcher
 * that hosts no store (TORCHELASTIC_USE_AGENT_STORE is not "True"), rank 0 hosts it on MASTER_PORT.
 * options may be NULL. Ignores SIGPIPE if it has its default disposition; see ddp_install_failure_handlers for what
 * becomes of fatal signals. */
DDP_API ddp_status ddp_init_process_group(const ddp_init_options* options, ddp_session** out);
/* Ends the session: waits for operations in flight, leaves the groups. NULL is allowed. */
DDP_API void ddp_session_destroy(ddp_session* session);
/* The group of all ranks; owned by the session. */
DDP_API ddp_group* ddp_session_world(ddp_session* session);
/* A key-value store that all ranks of the job share (in a world of one: of this process), below a prefix of this
 * session and restart: keys collide with nobody's. Connects when first asked for, within init_timeout; calls without a
 * timeout of their own have the session's. Owned by the session: do not destroy it. */
DDP_API ddp_status ddp_session_store(ddp_session* session, ddp_store** out);
DDP_API int32_t ddp_session_local_rank(const ddp_session* session);
DDP_API int32_t ddp_session_local_world_size(const ddp_session* session);
/* How often the job was restarted before this process was started. */
DDP_API int32_t ddp_session_restart_count(const ddp_session* session);

/* ---- Process group and collectives ---- */

DDP_API int32_t ddp_group_rank(const ddp_group* group);
DDP_API int32_t ddp_group_size(const ddp_group* group);
DDP_API const char* ddp_group_name(const ddp_group* group);

/* timeout_ms: deadline from issue to end; 0 means the session's. When it passes, the group is aborted: it fails this
 * operation on every rank sooner or later, and all later ones at once (DDP_ABORTED). Blocking calls run on the caller's
 * thread after all operations issued before. Buffers must stay valid until the operation ends; what is in them after a
 * failure is unspecified.
 * Before each operation the ranks compare what they are about to do: a difference is DDP_MISMATCH on every rank, says
 * who called what, and ends the group. DDP_CHECK_COLLECTIVES=0 in the environment of all ranks saves that round trip.
 */

/* In place: every rank's buffer becomes the reduction over all ranks; bitwise equal on all of them. */
DDP_API ddp_status ddp_all_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int64_t timeout_ms);
/* In place on root; what is in the others' buffers afterwards is unspecified. */
DDP_API ddp_status ddp_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                              int64_t timeout_ms);
/* Every rank's buffer becomes root's. */
DDP_API ddp_status ddp_broadcast(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms);
/* output holds size * input.count elements: rank r's input at r * input.count. */
DDP_API ddp_status ddp_all_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms);
/* The same on root; output is not looked at on the others. */
DDP_API ddp_status ddp_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms);
/* Rank r's output becomes output.count elements of root's input, from r * output.count on. input is not looked at on
 * the others. */
DDP_API ddp_status ddp_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms);
/* input holds size * output.count elements; rank r's output becomes the reduction over all ranks of those from
 * r * output.count on. The input is left as it is. */
DDP_API ddp_status ddp_reduce_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, ddp_reduction reduction,
                                      int64_t timeout_ms);
/* Rank r gets input_counts[r] elements of input, and gives output_counts[r] of output, one rank's after the other's.
 * The counts have an entry for each rank, add up to the buffers', and are copied; NULL: all equal. What one rank sends
 * and the other expects must agree. Buffers must not overlap. */
DDP_API ddp_status ddp_all_to_all(ddp_group* group, ddp_buffer input, const size_t* input_counts, ddp_buffer output,
                                  const size_t* output_counts, int64_t timeout_ms);
/* Returns once every rank has called it. */
DDP_API ddp_status ddp_barrier(ddp_group* group, int64_t timeout_ms);

/* The same, run in order on the session's progress thread; *work names the operation. */
DDP_API ddp_status ddp_all_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction,
                                        int64_t timeout_ms, ddp_work* work);
DDP_API ddp_status ddp_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                                    int64_t timeout_ms, ddp_work* work);
DDP_API ddp_status ddp_broadcast_async(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms,
                                       ddp_work* work);
DDP_API ddp_status ddp_all_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms,
                                        ddp_work* work);
DDP_API ddp_status ddp_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                    int64_t timeout_ms, ddp_work* work);
DDP_API ddp_status ddp_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                     int64_t timeout_ms, ddp_work* work);
DDP_API ddp_status ddp_reduce_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output,
                                            ddp_reduction reduction, int64_t timeout_ms, ddp_work* work);
DDP_API ddp_status ddp_all_to_all_async(ddp_group* group, ddp_buffer input, const size_t* input_counts,
                                        ddp_buffer output, const size_t* output_counts, int64_t timeout_ms,
                                        ddp_work* work);
DDP_API ddp_status ddp_barrier_async(ddp_group* group, int64_t timeout_ms, ddp_work* work);

/* Blocks until the operation ended; its deadline was set when it was issued. */
DDP_API ddp_status ddp_work_wait(ddp_work work);
/* Looks for at most timeout_ms: *completed tells whether the operation ended. Its failure is this call's status. */
DDP_API ddp_status ddp_work_wait_for(ddp_work work, int64_t timeout_ms, int32_t* completed);

/* ---- DistributedDataParallel: averages gradients over the ranks of a group, in buckets, while backward goes on ----
 */

typedef struct ddp_parameter {
  void* value; /* count elements */
  void* grad;  /* count elements, averaged in place; NULL: ddp_model_gradient() is library memory */
  size_t count;
  int32_t dtype; /* floating point */
  ddp_device device;
  const char* name; /* for error messages; copied */
} ddp_parameter;

typedef struct ddp_model_options {
  size_t first_bucket_bytes; /* 0 means 1 MiB: the first bucket is small so that communication starts early */
  size_t bucket_bytes;       /* 0 means 25 MiB */
} ddp_model_options;

/* Checks that all ranks have the same parameters (count, sizes, types; an error names the first that differs), then
 * copies rank 0's values to every rank. Collective. options may be NULL. */
DDP_API ddp_status ddp_model_create(ddp_group* group, const ddp_parameter* parameters, size_t count,
                                    const ddp_model_options* options, ddp_model** out);
/* In the middle of a step it aborts the group: reductions in flight use memory that is about to go. Destroy models
 * before their session. NULL is allowed. */
DDP_API void ddp_model_destroy(ddp_model* model);
/* Parameter i's gradient, count elements: the caller's grad, or library memory that is reduced without a copy. */
DDP_API void* ddp_model_gradient(ddp_model* model, size_t i);
/* Backward has produced gradient i of this step. When a bucket is complete (and all before it), its reduction starts.
 * Marking a parameter twice in a step is an error that names it; it is final, for the ranks no longer agree on what
 * comes next: every later call on this model fails with it too. Inside no_sync it does nothing. */
DDP_API ddp_status ddp_model_mark_ready(ddp_model* model, size_t i);
/* Waits until every gradient is the average over all ranks. A parameter that was never marked is an error that names
 * it, not a hang, and final like one marked twice. The caller's grads change only once all reductions of the step have
 * succeeded. Inside no_sync it does nothing. */
DDP_API ddp_status ddp_model_synchronize(ddp_model* model);
/* enabled = 1: gradients stay local (to be accumulated); 0: the next backward reduces what has accumulated. */
DDP_API ddp_status ddp_model_set_no_sync(ddp_model* model, int32_t enabled);
/* Number of buckets, for those who tune. */
DDP_API size_t ddp_model_bucket_count(const ddp_model* model);

/* ---- Checkpoints: one file in the safetensors format ---- */

typedef struct ddp_tensor {
  const char* name;
  const void* data;
  int32_t dtype;
  const int64_t* shape; /* rank entries; an empty shape is a scalar */
  size_t rank;
} ddp_tensor;

typedef struct ddp_metadata_entry {
  const char* key;
  const char* value;
} ddp_metadata_entry;

/* Writes to a temporary name beside path, fsyncs, renames: a crash leaves the previous file or the new one, never half
 * of one. Tensors are stored in the order given. Call it on one rank. */
DDP_API ddp_status ddp_checkpoint_save(const char* path, const ddp_tensor* tensors, size_t tensor_count,
                                       const ddp_metadata_entry* metadata, size_t metadata_count);
/* Reads and validates the header. DDP_CORRUPT if the file is truncated or malformed. */
DDP_API ddp_status ddp_checkpoint_open(const char* path, ddp_checkpoint** out);
DDP_API void ddp_checkpoint_close(ddp_checkpoint* checkpoint);
/* NULL if there is no such key. */
DDP_API const char* ddp_checkpoint_metadata(const ddp_checkpoint* checkpoint, const char* key);
/* Copies tensor `name` into buffer. DDP_MISMATCH if its type or shape differs from what is asked for, DDP_CORRUPT if
 * there is no such tensor. shape has rank entries. */
DDP_API ddp_status ddp_checkpoint_read(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                       const int64_t* shape, size_t rank);

/* ---- Stores: keys and values that ranks share, as torch.distributed has them; with its protocol and file format, so
 * that ranks in Python can share them too ----
 *
 * Every call ends. timeout_ms: how long to wait; 0 means the store's timeout, which is also that of calls without one.
 * A deadline that passes is DDP_TIMEOUT, its text names store, key and how long, and the store remains usable. Any
 * thread may call. */

/* size arbitrary bytes. Never owns. */
typedef struct ddp_bytes {
  const void* data; /* may be NULL if size is 0 */
  size_t size;
} ddp_bytes;

/* Where a call puts what it read: deliver(context, value) is called before it returns, once for each value; the bytes
 * are gone afterwards. Not called when the call fails. */
typedef struct ddp_sink {
  void* context;
  void (*deliver)(void* context, ddp_bytes value);
} ddp_sink;

/* A client of a c10d TCPStore: ddprun's, torchrun's, or any PyTorch program's since 2.2. Connects, retrying with
 * growing pauses until timeout_ms have passed (0 means 5 minutes; also the store's timeout). count_in: 1 to be one of
 * the workers that a dist.TCPStore(world_size=...) waits for. Keys up to 8191 bytes, values up to 8 MiB, 131072 keys a
 * call: beyond that DDP_INVALID_ARGUMENT. A lost connection is DDP_SYSTEM, then and ever after. Calls are served one
 * after the other: give each thread that waits its own. */
DDP_API ddp_status ddp_store_create_tcp(const char* host, int32_t port, int64_t timeout_ms, int32_t count_in,
                                        ddp_store** out);
/* A file that all ranks can open, in the format of torch's FileStore. Created if it is not there; its folder must be.
 * The last of world_size to destroy its store removes the file; with a negative world_size nobody does, nor if a
 * process was killed: give each run a file of its own. Has no queues. DDP_CORRUPT if the file holds something else. */
DDP_API ddp_status ddp_store_create_file(const char* path, int64_t world_size, int64_t timeout_ms, ddp_store** out);
/* A store inside this process. */
DDP_API ddp_status ddp_store_create_hash(int64_t timeout_ms, ddp_store** out);
/* base, every key with prefix and "/" before it. base must outlive it, and has its timeout. */
DDP_API ddp_status ddp_store_create_prefix(const char* prefix, ddp_store* base, ddp_store** out);
/* NULL is allowed. */
DDP_API void ddp_store_destroy(ddp_store* store);
DDP_API ddp_status ddp_store_set_timeout(ddp_store* store, int64_t timeout_ms);

DDP_API ddp_status ddp_store_set(ddp_store* store, const char* key, ddp_bytes value);
/* Waits until the key exists. */
DDP_API ddp_status ddp_store_get(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/* *sum: the decimal number there plus delta, which becomes the value; a missing key counts as 0. Where there is no
 * number: DDP_INVALID_ARGUMENT, but a TCP store loses its connection (DDP_SYSTEM), as PyTorch's does. */
DDP_API ddp_status ddp_store_add(ddp_store* store, const char* key, int64_t delta, int64_t* sum);
/* *all: 1 if all exist now. A queue that is not empty counts as its key. */
DDP_API ddp_status ddp_store_check(ddp_store* store, const char* const* keys, size_t count, int32_t* all);
/* Until ddp_store_check would say 1. */
DDP_API ddp_status ddp_store_wait(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms);
/* Sets desired if the value is expected; a missing key counts as one with an empty value. Delivers the value after
 * that, but expected if the key is missing and expected is not empty (as every PyTorch answers). */
DDP_API ddp_status ddp_store_compare_set(ddp_store* store, const char* key, ddp_bytes expected, ddp_bytes desired,
                                         ddp_sink sink);
/* Puts value behind what is there; a missing key is created. */
DDP_API ddp_status ddp_store_append(ddp_store* store, const char* key, ddp_bytes value);
/* *deleted: 1 if it was there. Queues cannot be deleted. */
DDP_API ddp_status ddp_store_delete_key(ddp_store* store, const char* key, int32_t* deleted);
/* Of the whole store, whatever the prefix, its own counters among them. */
DDP_API ddp_status ddp_store_num_keys(ddp_store* store, int64_t* count);
/* In no order; with a prefix those that have it, without it. */
DDP_API ddp_status ddp_store_list_keys(ddp_store* store, ddp_sink sink);
/* Waits until all exist; delivers in the order of the keys. */
DDP_API ddp_status ddp_store_multi_get(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms,
                                       ddp_sink sink);
/* count keys, count values. */
DDP_API ddp_status ddp_store_multi_set(ddp_store* store, const char* const* keys, const ddp_bytes* values,
                                       size_t count);

/* Queues: first in, first out; their names are apart from keys. DDP_INVALID_ARGUMENT on a file; DDP_SYSTEM, and the
 * connection is lost, with a PyTorch server before 2.8 or with use_libuv=False. */
DDP_API ddp_status ddp_store_queue_push(ddp_store* store, const char* key, ddp_bytes value);
/* The oldest element; waits for one. */
DDP_API ddp_status ddp_store_queue_pop(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/* *popped: 1 if there was an element, which is delivered. */
DDP_API ddp_status ddp_store_queue_try_pop(ddp_store* store, const char* key, int32_t* popped, ddp_sink sink);
DDP_API ddp_status ddp_store_queue_len(ddp_store* store, const char* key, int64_t* length);

/* Returns once world_size (at least 1) calls with this key were made. For one use: afterwards the key stays open, and a
 * call that ran out of time has counted all the same. */
DDP_API ddp_status ddp_store_barrier(ddp_store* store, const char* key, int64_t world_size, int64_t timeout_ms);

/* ---- What a worker tells its launcher ---- */

/* Writes message, in the launcher's format, to the file named by TORCHELASTIC_ERROR_FILE: ddprun and torchrun print it
 * in their failure report. Returns 1 if that was done, 0 without that variable or if the file cannot be written: then
 * nobody but the caller will say it. */
DDP_API int ddp_record_error(const char* message);

/* From now on the same file tells of a crash: a fatal signal (SEGV, BUS, FPE, ILL, ABRT, SYS, TRAP), an exception that
 * nobody catches, std::terminate, or a failed check inside libddp, with its reason and a backtrace. The process dies as
 * it would have anyway: by the same signal, with the same core dump.
 * ddp_init_process_group does it; call it yourself to cover what comes before, and in each further thread whose stack
 * may overflow. Signals that are handled or ignored by then are left alone (Python's faulthandler, sanitizers, your own
 * handlers), as is an error file that is already there. DDP_FAILURE_HANDLERS=0 in the environment turns it off.
 * A backtrace names functions that their module exports (link with -rdynamic for those of a program), and of the others
 * the offset, which `addr2line -Cfe MODULE OFFSET` turns into function and line: "./train(+0x1234)[0x55...]".
 * Returns 1 if crashes will be recorded, 0 without TORCHELASTIC_ERROR_FILE or if turned off. */
DDP_API int ddp_install_failure_handlers(void);

#ifdef __cplusplus
}
#endif
#endif
