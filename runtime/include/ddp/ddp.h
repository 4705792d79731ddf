/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * libddp's C interface (C99). C++ users take ddp/ddp.hpp, thin headers over this one.
 *
 * Every function that can fail returns a ddp_status; on anything but DDP_OK, ddp_error_last() holds one line for this
 * thread that says what was tried, on what, why it failed and which rank is to blame.
 *
 * Threads: a session, its groups and models may be used from any thread, by one thread at a time per group. All ranks
 * of a group must call the same operations in the same order.
 *
 * Structs that start as all zeros have the defaults: 0 and NULL mean "as usual". An option struct begins with its size,
 * so that it may grow: DDP_..._INIT sets it, and 0 means the layout of 0.1.0. A size that is larger than this libddp
 * knows is accepted if what is behind is all zeros, else DDP_INVALID_ARGUMENT. Counts are in elements unless a name
 * says bytes; times are in milliseconds; text is UTF-8 that ends with NUL. A pointer that may be NULL is said to be;
 * any other that is makes a call fail with DDP_INVALID_ARGUMENT, and functions without a status need it to be valid.
 *
 * Where a function is named after one of PyTorch's, it does the same; what differs is said.
 */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include <stddef.h>
#include <stdint.h>

/** Marks what libddp.so exports: all functions of this header, and nothing else. */
#if defined(__GNUC__)
#define DDP_API __attribute__((visibility("default")))
#else
#define DDP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a call. */
typedef enum ddp_status {
  DDP_OK = 0,               /**< it did what it says */
  DDP_INVALID_ARGUMENT = 1, /**< the caller's input is wrong: a size, a name, a missing variable, calls out of order */
  DDP_TIMEOUT = 2,          /**< a deadline passed */
  DDP_PEER_LOST = 3,        /**< another rank died or left */
  DDP_ABORTED = 4,          /**< the group was aborted by an earlier error */
  DDP_MISMATCH = 5,         /**< ranks disagree, for example about a parameter's shape */
  DDP_SYSTEM = 6,           /**< the operating system or a backend failed */
  DDP_CORRUPT = 7           /**< a file is not what it should be */
} ddp_status;

/** The type of a buffer's elements. 16-bit floating point is reduced in 32 bits and rounded once, to the nearest, when
 * all contributions are in. */
typedef enum ddp_dtype {
  DDP_FLOAT32 = 0,  /**< IEEE single */
  DDP_FLOAT64 = 1,  /**< IEEE double */
  DDP_INT32 = 2,    /**< 4 bytes */
  DDP_INT64 = 3,    /**< 8 bytes */
  DDP_UINT8 = 4,    /**< 1 byte */
  DDP_INT8 = 5,     /**< 1 byte */
  DDP_INT16 = 6,    /**< 2 bytes */
  DDP_UINT16 = 7,   /**< 2 bytes */
  DDP_UINT32 = 8,   /**< 4 bytes */
  DDP_UINT64 = 9,   /**< 8 bytes */
  DDP_FLOAT16 = 10, /**< IEEE half */
  DDP_BFLOAT16 = 11 /**< the upper half of a float32 */
} ddp_dtype;

/** How contributions become one. The order of a sum depends on the number of ranks and the element's place, never on
 * who arrives first. */
typedef enum ddp_reduce_op {
  DDP_SUM = 0,       /**< integers wrap */
  DDP_AVG = 1,       /**< each contribution times 1/N, then summed, as PyTorch's DDP does; floating point only */
  DDP_PRODUCT = 2,   /**< integers wrap */
  DDP_MIN = 3,       /**< the smallest */
  DDP_MAX = 4,       /**< the largest */
  DDP_BAND = 5,      /**< bitwise; integers only */
  DDP_BOR = 6,       /**< likewise */
  DDP_BXOR = 7,      /**< likewise */
  DDP_PREMUL_SUM = 8 /**< each contribution times its rank's factor, then summed; floating point only */
} ddp_reduce_op;

/** What becomes of the contributions: an operation, and for one of them a factor. */
typedef struct ddp_reduction {
  int32_t op;    /**< ddp_reduce_op */
  double factor; /**< DDP_PREMUL_SUM: of this rank; else unused */
} ddp_reduction;

/** Where memory is. */
typedef enum ddp_device_kind {
  DDP_CPU = 0, /**< the host */
  DDP_CUDA = 1 /**< an NVIDIA GPU */
} ddp_device_kind;

/** One device. All zeros: the CPU. */
typedef struct ddp_device {
  int32_t kind;  /**< ddp_device_kind; a DDP_CUDA one is for collectives and messages, in a group with such a backend */
  int32_t index; /**< 0 for the CPU */
} ddp_device;

/** count elements of a type at data. Never owns. */
typedef struct ddp_buffer {
  void* data;        /**< the first element; may be NULL if count is 0 */
  size_t count;      /**< in elements, not bytes */
  int32_t dtype;     /**< ddp_dtype */
  ddp_device device; /**< where data is */
} ddp_buffer;

/** size arbitrary bytes. Never owns. */
typedef struct ddp_bytes {
  const void* data; /**< may be NULL if size is 0 */
  size_t size;      /**< in bytes */
} ddp_bytes;

/** Where a call puts what it read: deliver(context, value) is called before it returns, once for each value; the bytes
 * are gone afterwards. Not called when the call fails. */
typedef struct ddp_sink {
  void* context;                                   /**< handed to deliver as it is */
  void (*deliver)(void* context, ddp_bytes value); /**< must not be NULL, nor throw */
} ddp_sink;

/** This process's membership in a job. Made by ddp_session_init(), ended by ddp_session_destroy(). */
typedef struct ddp_session ddp_session;
/** The ranks that talk to each other. Owned by its session; single-use after an error. */
typedef struct ddp_group ddp_group;
/** The parameters of a model whose gradients are averaged. Made by ddp_reducer_create(). */
typedef struct ddp_reducer ddp_reducer;
/** A checkpoint opened for reading. Made by ddp_checkpoint_open() and a folder's functions. */
typedef struct ddp_checkpoint ddp_checkpoint;
/** The checkpoints of a training. Made by ddp_checkpoint_folder_create(). */
typedef struct ddp_checkpoint_folder ddp_checkpoint_folder;
/** A store of keys and values. Made by one of the ddp_store_create functions, or a session's. */
typedef struct ddp_store ddp_store;

/** One operation: the group it runs in and its sequence number there. A plain value; dropping it neither waits nor
 * cancels. */
typedef struct ddp_work {
  ddp_group* group;  /**< where it was issued */
  uint64_t sequence; /**< the how-manieth collective of the group it is, from 1 on; messages have large numbers */
} ddp_work;

/** This thread's text for the last call that failed: one line, UTF-8, empty if none did. Never NULL; valid until the
 * next call of this thread that fails. Other threads' failures do not touch it. */
DDP_API const char* ddp_error_last(void);
/** This library's version, such as "0.1.0". Never NULL, valid for ever. */
DDP_API const char* ddp_version(void);
/** Bytes of one element of a ddp_dtype; 0 for an unknown type. */
DDP_API size_t ddp_dtype_size(int32_t dtype);

/**
 * @defgroup session Session: this process's membership in a job
 * @{
 */

/** How to join a job. All zeros: as the environment says. */
typedef struct ddp_session_options {
  size_t size; /**< sizeof of this struct; 0: its layout in 0.1.0 */
  /** What carries the collectives: "gloo" for the CPU's memory, "nccl" for that of CUDA devices, both as
   * "cpu:gloo,cuda:nccl", or NAME of a plug-in libddp_NAME.so. NULL means "gloo". */
  const char* backend;
  int64_t init_timeout_ms; /**< for finding all other ranks; 0 means 60 s */
  int64_t timeout_ms;      /**< for each collective, from issue to end; 0 means 30 min */
  /** Where the ranks meet; NULL means "env://". See ddp_session_init. */
  const char* init_method;
  int32_t rank;             /**< counts if world_size is given */
  int32_t world_size;       /**< 0: as init_method or the environment says */
  int32_t local_rank;       /**< counts if local_world_size is given */
  int32_t local_world_size; /**< 0: as the environment says; 1 if it does not */
  /** The GPU this process works on if there is a backend for CUDA memory, such as "cuda:0", of those that
   * CUDA_VISIBLE_DEVICES leaves. NULL: that of the local rank. */
  const char* device;
} ddp_session_options;
/** Initial value of a ddp_session_options: its size, and the default of each field. */
#define DDP_SESSION_OPTIONS_INIT \
  { sizeof(ddp_session_options), NULL, 0, 0, NULL, 0, 0, 0, 0, NULL }

/** Joins a job and connects to all its ranks. They meet where init_method says:
 *
 * | init_method       | where |
 * |-------------------|-------|
 * | `env://`          | as the environment says |
 * | `tcp://HOST:PORT` | at a store that rank 0 hosts there, or the launcher if it is its address; of IPv6 `[fd00::1]` |
 * | `file:///PATH`    | in a file that all ranks can open, a new one for each run; it is removed when all have left |
 *
 * Rank and world size are those of options, else of the URL (`tcp://HOST:PORT?rank=0&world_size=2`), else of the
 * environment, which may have been made by
 *
 * | starter | what is read |
 * |---------|--------------|
 * | ddprun, torchrun, a script | RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT |
 * | Slurm's srun | SLURM_PROCID, SLURM_LOCALID and what else a step has; ranks meet on its first node |
 * | Open MPI's mpirun | OMPI_COMM_WORLD_RANK, ...; on several nodes set MASTER_ADDR and MASTER_PORT as well |
 * | MPICH's and Intel MPI's mpiexec | PMI_RANK, PMI_SIZE, ...; likewise |
 *
 * The first of them that has set its variables counts. With none of these, the process is a world of its own.
 * Where the launcher hosts no store (TORCHELASTIC_USE_AGENT_STORE is not "True"), rank 0 does.
 *
 * Ranks connect to each other at the address of the network interface that GLOO_SOCKET_IFNAME or DDP_SOCKET_IFNAME
 * names; else at one that the others can reach.
 *
 * options may be NULL. Ignores SIGPIPE if it has its default disposition; see ddp_failure_handlers_install for what
 * becomes of fatal signals. DDP_INVALID_ARGUMENT names the variable or the part of the URL that is missing or wrong;
 * DDP_TIMEOUT the ranks that did not come. Source: torch.distributed.init_process_group. */
DDP_API ddp_status ddp_session_init(const ddp_session_options* options, ddp_session** out);
/** Ends the session: waits for operations in flight, leaves the groups. NULL is allowed. */
DDP_API void ddp_session_destroy(ddp_session* session);
/** The group of all ranks (torch.distributed.group.WORLD); owned by the session, valid until it is destroyed. */
DDP_API ddp_group* ddp_session_world(ddp_session* session);
/** A key-value store that all ranks of the job share (in a world of one: of this process), below a prefix of this
 * session and restart: keys collide with nobody's. Connects when first asked for, within init_timeout; calls without a
 * timeout of their own have the session's. Owned by the session: do not destroy it. */
DDP_API ddp_status ddp_session_store(ddp_session* session, ddp_store** out);
/** This process's rank among those of its node, from 0 on (LOCAL_RANK). */
DDP_API int32_t ddp_session_local_rank(const ddp_session* session);
/** How many ranks of the job this node has (LOCAL_WORLD_SIZE). */
DDP_API int32_t ddp_session_local_world_size(const ddp_session* session);
/** How often the job was restarted before this process was started. */
DDP_API int32_t ddp_session_restart_count(const ddp_session* session);
/** This process's rank in its job, for those who want to know who speaks: its first session's, else as the environment
 * says (RANK, or what srun or mpirun set). 0 if nothing does, or nothing that makes sense. Any thread may call. */
DDP_API int32_t ddp_job_rank(void);

/** @} */

/**
 * @defgroup groups Groups of some of the ranks
 *
 * The session's world has all ranks; more groups have some of them, each with connections of its own. What one group
 * waits for holds up no other. A group that has failed stays so, but a new one of the ranks that are left can be made
 * as long as the store lives. Where the launcher tells which ranks died, every group that has one of them fails at
 * once, also on ranks that wait for others; groups without them go on. Source: torch.distributed.new_group with
 * use_local_synchronization=True, and MPI_Comm_split.
 *
 * @{
 */

/** What a group is to be like. All zeros: as the session, for a split as the parent. */
typedef struct ddp_group_options {
  size_t size;         /**< sizeof of this struct; 0: its layout in 0.1.0 */
  const char* name;    /**< for one group of the job, without a slash; NULL: made from the members. Of a split: any */
  const char* backend; /**< NULL: as its session or parent */
  int64_t timeout_ms;  /**< for each collective; 0: as its session or parent */
} ddp_group_options;
/** Initial value of a ddp_group_options: its size, and the default of each field. */
#define DDP_GROUP_OPTIONS_INIT \
  { sizeof(ddp_group_options), NULL, NULL, 0 }

/** Makes a group of these ranks of the job; NULL: of all. Its ranks are in ascending order, however they are given.
 * Only its members have to call this, in the same order if they make several groups of the same members; others get
 * NULL at once. Returns when all members are connected, at the latest when the session's init_timeout_ms have passed:
 * then DDP_TIMEOUT names who did not come, or DDP_PEER_LOST who died meanwhile. With a name, members that list
 * different ranks are DDP_MISMATCH. A rank that is none of the job's, or is given twice, is DDP_INVALID_ARGUMENT.
 * options may be NULL. Any thread may call; the group is the session's. Source: torch.distributed.new_group. */
DDP_API ddp_status ddp_group_new(ddp_session* session, const int32_t* ranks, size_t count,
                                 const ddp_group_options* options, ddp_group** out);

/** As ddp_group_split()'s color: this rank joins none of the groups. */
#define DDP_NO_COLOR (-1)

/** Collective over the parent: the ranks that give the same color make a group, in the order of their keys, then of
 * their ranks in the parent. A negative color is DDP_NO_COLOR, and *out NULL. options may be NULL. One thread at a time
 * for the parent; fails as its collectives do, and as ddp_group_new(). Source: MPI_Comm_split. */
DDP_API ddp_status ddp_group_split(ddp_group* parent, int32_t color, int32_t key, const ddp_group_options* options,
                                   ddp_group** out);

/** Leaves a group: waits for this rank's operations in flight and closes its connections. The other members do the same
 * when they like; operations that need this rank fail there. Not for the world, which ends with its session, as do the
 * groups that are left then: DDP_INVALID_ARGUMENT. Destroy models of the group first. NULL is allowed. Source:
 * torch.distributed.destroy_process_group. */
DDP_API ddp_status ddp_group_destroy(ddp_group* group);

/** Which backend carries the group, such as "gloo"; "" if group is NULL. Valid as long as the group. Source:
 * torch.distributed.get_backend. */
DDP_API const char* ddp_group_backend(const ddp_group* group);
/** The rank in the job of the group's rank `rank`; -1 if there is none. Source: torch.distributed.get_global_rank. */
DDP_API int32_t ddp_group_global_rank(const ddp_group* group, int32_t rank);
/** The rank in the group of the job's rank `global_rank`; -1 if it is not a member. Source:
 * torch.distributed.get_group_rank. */
DDP_API int32_t ddp_group_group_rank(const ddp_group* group, int32_t global_rank);

/** The world of this process's first session that has not ended; NULL if there is none. Any thread may ask. Source:
 * torch.distributed.group.WORLD. */
DDP_API ddp_group* ddp_group_default(void);

/** @} */

/**
 * @defgroup group Process group and collectives
 *
 * timeout_ms: deadline from issue to end; 0 means the group's. When it passes, the group is aborted: it fails this
 * operation on every rank sooner or later, and all later ones at once (DDP_ABORTED). Blocking calls run on the caller's
 * thread after all operations issued before. Buffers must stay valid until the operation ends; what is in them after a
 * failure is unspecified.
 * With DDP_DEBUG=detail in the environment of all ranks, they compare what they are about to do before each collective:
 * a difference is DDP_MISMATCH on every rank, says who called what, and ends the group. So is a message that is not
 * what its receiver expects; its sender has DDP_PEER_LOST, which quotes that. Without it, a size that differs between
 * ranks may end the process inside the backend, and other differences last until the deadline. Calls on the memory of
 * GPUs are not compared.
 *
 * @{
 */

/** This process's rank within the group, from 0 to size - 1 (torch.distributed.get_rank); -1 if group is NULL. Any
 * thread may ask. */
DDP_API int32_t ddp_group_rank(const ddp_group* group);
/** How many ranks the group has, at least 1 (torch.distributed.get_world_size); -1 if group is NULL. Any thread may
 * ask.
 */
DDP_API int32_t ddp_group_size(const ddp_group* group);
/** What messages call the group, such as "world"; "" if group is NULL. Valid as long as the group. */
DDP_API const char* ddp_group_name(const ddp_group* group);

/** In place: every rank's buffer becomes the reduction over all ranks; bitwise equal on all of them. Count, type and
 * reduction must be the same on every rank. Source: torch.distributed.all_reduce. */
DDP_API ddp_status ddp_all_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int64_t timeout_ms);
/** In place on root; what is in the others' buffers afterwards is unspecified. Count, type, reduction and root must be
 * the same on every rank. Source: torch.distributed.reduce. */
DDP_API ddp_status ddp_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                              int64_t timeout_ms);
/** Every rank's buffer becomes root's. Count, type and root must be the same on every rank. Source:
 * torch.distributed.broadcast. */
DDP_API ddp_status ddp_broadcast(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms);
/** output holds size * input.count elements: rank r's input at r * input.count. The input is left as it is; count and
 * type must be the same on every rank. Source: torch.distributed.all_gather_into_tensor. */
DDP_API ddp_status ddp_all_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms);
/** The same on root; output is not looked at on the others. Source: torch.distributed.gather, into one buffer. */
DDP_API ddp_status ddp_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms);
/** Rank r's output becomes output.count elements of root's input, from r * output.count on. input is not looked at on
 * the others. Count, type and root must be the same on every rank. Source: torch.distributed.scatter, out of one
 * buffer. */
DDP_API ddp_status ddp_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms);
/** input holds size * output.count elements; rank r's output becomes the reduction over all ranks of those from
 * r * output.count on. The input is left as it is. Count, type and reduction must be the same on every rank. Source:
 * torch.distributed.reduce_scatter_tensor. */
DDP_API ddp_status ddp_reduce_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, ddp_reduction reduction,
                                      int64_t timeout_ms);
/** Rank r gets input_counts[r] elements of input, and gives output_counts[r] of output, one rank's after the other's.
 * The counts have an entry for each rank, add up to the buffers', and are copied; NULL: all equal. What one rank sends
 * and the other expects must agree. Buffers must not overlap. Source: torch.distributed.all_to_all_single. */
DDP_API ddp_status ddp_all_to_all(ddp_group* group, ddp_buffer input, const size_t* input_counts, ddp_buffer output,
                                  const size_t* output_counts, int64_t timeout_ms);
/** Returns once every rank has called it. Source: torch.distributed.barrier. */
DDP_API ddp_status ddp_barrier(ddp_group* group, int64_t timeout_ms);
/** A barrier that knows who is missing: it meets in the job's store and not over the group's connections. Returns once
 * every rank has called it. If some have not when the first rank that did has waited for timeout_ms, all that wait, and
 * all that still come, get DDP_TIMEOUT, in words that name the missing ones: one of them, or with wait_all_ranks = 1
 * all. Like any other operation it has its turn among the group's, and its failure ends the group. For finding out
 * which rank is stuck; slower than ddp_barrier(). Source: torch.distributed.monitored_barrier, where only rank 0 learns
 * who it is.
 */
DDP_API ddp_status ddp_monitored_barrier(ddp_group* group, int32_t wait_all_ranks, int64_t timeout_ms);

/** @name Asynchronous collectives
 * The same, run in order on a thread of the group's; *work names the operation. Buffers are the operation's until
 * ddp_work_wait() or ddp_work_wait_for() has said that it ended. What is wrong with the arguments, or a group that has
 * failed already, is this call's status; what goes wrong later is that of the waiting. Source: async_op=True of
 * PyTorch.
 * @{ */
/** ddp_all_reduce(), asynchronously. */
DDP_API ddp_status ddp_all_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction,
                                        int64_t timeout_ms, ddp_work* work);
/** ddp_reduce(), asynchronously. */
DDP_API ddp_status ddp_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                                    int64_t timeout_ms, ddp_work* work);
/** ddp_broadcast(), asynchronously. */
DDP_API ddp_status ddp_broadcast_async(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms,
                                       ddp_work* work);
/** ddp_all_gather(), asynchronously. */
DDP_API ddp_status ddp_all_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms,
                                        ddp_work* work);
/** ddp_gather(), asynchronously. */
DDP_API ddp_status ddp_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                    int64_t timeout_ms, ddp_work* work);
/** ddp_scatter(), asynchronously. */
DDP_API ddp_status ddp_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                     int64_t timeout_ms, ddp_work* work);
/** ddp_reduce_scatter(), asynchronously. */
DDP_API ddp_status ddp_reduce_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output,
                                            ddp_reduction reduction, int64_t timeout_ms, ddp_work* work);
/** ddp_all_to_all(), asynchronously. */
DDP_API ddp_status ddp_all_to_all_async(ddp_group* group, ddp_buffer input, const size_t* input_counts,
                                        ddp_buffer output, const size_t* output_counts, int64_t timeout_ms,
                                        ddp_work* work);
/** ddp_barrier(), asynchronously. */
DDP_API ddp_status ddp_barrier_async(ddp_group* group, int64_t timeout_ms, ddp_work* work);
/** @} */

/**
 * @name Messages between two ranks
 * Source: torch.distributed's send, recv, isend and irecv. They start at once and wait for nothing else in their group:
 * only for each other. Messages between two ranks with the same tag arrive in the order in which they were sent; count
 * and type of both sides must agree. Of a group's messages any number may be in flight, and several threads may wait.
 * @{
 */

/** Of ddp_recv() and ddp_irecv(): from whichever rank sends first. */
#define DDP_ANY_RANK (-1)

/** Sends the buffer to another rank. Returns once the buffer may be used again, which says nothing about the receiver.
 */
DDP_API ddp_status ddp_send(ddp_group* group, ddp_buffer buffer, int32_t destination, uint32_t tag, int64_t timeout_ms);
/** Waits until the buffer holds what source, a rank or DDP_ANY_RANK, has sent. *sender: the rank it came from; may be
 * NULL. */
DDP_API ddp_status ddp_recv(ddp_group* group, ddp_buffer buffer, int32_t source, uint32_t tag, int64_t timeout_ms,
                            int32_t* sender);
/** ddp_send() that does not wait. Wait for each: until then the library remembers it. */
DDP_API ddp_status ddp_isend(ddp_group* group, ddp_buffer buffer, int32_t destination, uint32_t tag, int64_t timeout_ms,
                             ddp_work* work);
/** ddp_recv() that does not wait. Likewise; ddp_work_wait_source() tells the sender. */
DDP_API ddp_status ddp_irecv(ddp_group* group, ddp_buffer buffer, int32_t source, uint32_t tag, int64_t timeout_ms,
                             ddp_work* work);

/** @} */

/** Blocks until the operation ended, and returns what became of it: its own failure, or DDP_ABORTED if an earlier
 * operation of the group failed. Its deadline was set when it was issued. Any number of times, from any thread. Source:
 * Work.wait of PyTorch. */
DDP_API ddp_status ddp_work_wait(ddp_work work);
/** The same. *source: the rank that a message came from or went to; -1 of a collective, or if somebody has waited for
 * the message already. */
DDP_API ddp_status ddp_work_wait_source(ddp_work work, int32_t* source);
/** Looks for at most timeout_ms (0: not at all): *completed tells whether the operation ended. Its failure is this
 * call's status; that it has not ended yet is none. Source: Work.is_completed of PyTorch. */
DDP_API ddp_status ddp_work_wait_for(ddp_work work, int64_t timeout_ms, int32_t* completed);
/** ddp_work_wait(), but the host waits also for operations on the memory of a GPU. Afterwards the result may be read
 * anywhere. */
DDP_API ddp_status ddp_work_synchronize(ddp_work work);

/** @} */

/** @name CUDA streams
 * Operations on the memory of a GPU (ddp_buffer::device is a DDP_CUDA one) are enqueued, as kernels are: an operation
 * begins when all that was on this thread's current stream of that device at the call is done, and runs on a stream of
 * the group's own. No call waits for its end: a blocking one and ddp_work_wait() make the current stream wait for it,
 * so that what comes on that stream later finds the result; ddp_work_wait_for() looks, ddp_work_synchronize() makes the
 * host wait. Only ddp_barrier() in a group without a backend for the CPU waits itself. The first operation of a group
 * returns when the other ranks have called theirs.
 *
 * Buffers must not be freed or given to another stream before the operation ended. Differences from operations on
 * the CPU's memory: reductions of 16-bit floating point round at every hop; there are none of 16-bit integers and no
 * bitwise ones; messages have no tags that count, must name their source, and are in one row with the collectives: two
 * ranks that both send first wait for each other. An error, or a deadline that passes, aborts the communicator: then
 * what is on the current stream goes on with a buffer whose content is unspecified, and the next call, or
 * ddp_work_synchronize(), tells.
 * @{ */

/** What this thread's operations on a CUDA device follow from now on, and what waits for them: a cudaStream_t or
 * CUstream of that device. NULL, as at first, is the legacy default stream. Source: torch.cuda.stream. */
DDP_API ddp_status ddp_stream_set_current(int32_t device, void* stream);
/** *stream: what ddp_stream_set_current() has set last on this thread, or NULL. Source: torch.cuda.current_stream. */
DDP_API ddp_status ddp_stream_current(int32_t device, void** stream);
/** *communicator: the group's ncclComm_t, for those who call NCCL themselves; non-blocking (see
 * ncclCommInitRankConfig). While they are in such a call, nothing else may be: no operation on the memory of a GPU in
 * flight. Gone once an operation has failed: DDP_ABORTED. */
DDP_API ddp_status ddp_group_nccl_communicator(ddp_group* group, void** communicator);

/** @name Collectives on objects
 * An object is bytes, as many as each rank likes: text, a serialised value. Each call is one operation of the group,
 * with a sequence number and a deadline like the others; sizes go first, then the bytes, without padding. What comes is
 * delivered before the call returns, in the order of ranks. A rank needs memory for what it gets, and scatter_object's
 * root for a copy of all. For gradients and the like take the collectives on buffers, which copy nothing.
 * @{ */
/** Root's object is delivered on every rank; the others' is not looked at. Source:
 * torch.distributed.broadcast_object_list.
 */
DDP_API ddp_status ddp_broadcast_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms,
                                        ddp_sink sink);
/** Every rank's object is delivered on every rank: as many deliveries as the group has ranks. Source:
 * torch.distributed.all_gather_object. */
DDP_API ddp_status ddp_all_gather_object(ddp_group* group, ddp_bytes object, int64_t timeout_ms, ddp_sink sink);
/** The same on root; nothing is delivered on the others, whose sink is not looked at. Source:
 * torch.distributed.gather_object. */
DDP_API ddp_status ddp_gather_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms,
                                     ddp_sink sink);
/** Root has an object for each rank, which is delivered there. count: how many root has, the group's size; the others'
 * objects are not looked at. Source: torch.distributed.scatter_object_list. */
DDP_API ddp_status ddp_scatter_object(ddp_group* group, const ddp_bytes* objects, size_t count, int32_t root,
                                      int64_t timeout_ms, ddp_sink sink);
/** @} */

/** @} */

/**
 * @defgroup model DistributedDataParallel
 *
 * Averages gradients over the ranks of a group, in buckets, while backward goes on. Its collectives are the group's:
 * one thread at a time, the group's errors, and its timeout as their deadline. Source:
 * torch.nn.parallel.DistributedDataParallel.
 *
 * @{
 */

/** A tensor of the model, a trainable one or a buffer: plain memory. Never owns. */
typedef struct ddp_parameter {
  void* value;       /**< count elements */
  void* grad;        /**< count elements, averaged in place; NULL: in a bucket, see ddp_reducer_gradient(). Of a buffer
                      * it is not looked at */
  size_t count;      /**< in elements */
  int32_t dtype;     /**< floating point; of a buffer any ddp_dtype */
  ddp_device device; /**< where value and grad are; of all of a model's parameters the same, of buffers any */
  const char* name;  /**< for error messages; copied; may be NULL */
  const int64_t* shape; /**< rank entries, whose product is count; copied; may be NULL: one dimension of count */
  size_t rank;          /**< number of dimensions in shape */
} ddp_parameter;

/** Where one parameter's gradient lies in a bucket. Source: GradBucket.gradients() and .parameters(). */
typedef struct ddp_grad_slice {
  size_t parameter;     /**< its number */
  size_t offset;        /**< of its first element in the bucket, in elements */
  size_t count;         /**< in elements */
  const int64_t* shape; /**< rank entries, whose product is count */
  size_t rank;          /**< number of dimensions */
  void* value;          /**< the parameter itself, count elements */
} ddp_grad_slice;

/** Gradients that travel together. Source: torch.distributed.GradBucket. */
typedef struct ddp_grad_bucket {
  size_t index;                 /**< the first to be reduced has 0 */
  int32_t is_last;              /**< 1: no other comes behind it */
  ddp_buffer buffer;            /**< all of its gradients, without gaps */
  const ddp_grad_slice* slices; /**< in the order in which they lie there */
  size_t slice_count;           /**< how many */
} ddp_grad_bucket;

/** All zeros: as PyTorch. Equal on all ranks, but for gradient_as_bucket_view. Source: the arguments of
 * DistributedDataParallel. */
typedef struct ddp_reducer_options {
  size_t size;                     /**< sizeof of this struct; 0: its layout in 0.1.0 */
  size_t first_bucket_bytes;       /**< 0 means 1 MiB: the first bucket is small so that communication starts early */
  size_t bucket_bytes;             /**< 0 means 25 MiB */
  const ddp_parameter* buffers;    /**< what is not trained but belongs to the model, such as running statistics; the
                                    * array is copied; may be NULL if buffer_count is 0 */
  size_t buffer_count;             /**< how many */
  int32_t find_unused_parameters;  /**< 1: one that is not marked in a step is unused by this rank, not an error */
  int32_t static_graph;            /**< 1: each is marked as often as in the first step, maybe never, maybe twice */
  int32_t gradient_as_bucket_view; /**< 1: gradients live in the buckets, so that none is copied: every grad is NULL */
  int32_t no_broadcast_buffers;    /**< 1: buffers are rank 0's at the beginning only, not before each forward */
} ddp_reducer_options;
/** Initial value of a ddp_reducer_options: its size, and the default of each field. */
#define DDP_REDUCER_OPTIONS_INIT \
  { sizeof(ddp_reducer_options), 0, 0, NULL, 0, 0, 0, 0, 0 }

/** Checks that all ranks have the same parameters and buffers (count, shapes, types; an error names the first that
 * differs and both shapes), then copies rank 0's values to every rank. Collective. options may be NULL, and parameters
 * if count is 0; the array itself is copied, the memory it points to must stay until the model is destroyed.
 * DDP_MISMATCH on every rank if they differ.
 *
 * Where parameters are on a GPU, of a group with a backend for it, so are the buckets. ddp_reducer_mark_ready() and
 * ddp_reducer_synchronize() then follow this thread's current stream, as operations do: the gradient is what that
 * stream has written when it comes so far, and what is on it after ddp_reducer_synchronize() finds the average; the
 * host waits for neither, but in the first step, which may make buckets anew, and with find_unused_parameters. NCCL
 * averages, so 16-bit gradients round at every hop. An operation that fails may leave gradients of any value.
 *
 * Buckets are filled from the last parameter to the first; after the first step they are made anew in the order in
 * which gradients came on rank 0, unless find_unused_parameters says that there is no such order, or a gradient's
 * memory may not move. */
DDP_API ddp_status ddp_reducer_create(ddp_group* group, const ddp_parameter* parameters, size_t count,
                                      const ddp_reducer_options* options, ddp_reducer** out);
/** In the middle of a step it aborts the group: reductions in flight use memory that is about to go. Destroy models
 * before their session. NULL is allowed. */
DDP_API void ddp_reducer_destroy(ddp_reducer* model);
/** Parameter i's gradient, count elements: the caller's grad, or memory in a bucket that is reduced without a copy.
 * That is valid until the model is destroyed; but with gradient_as_bucket_view it moves once, values and all, in the
 * first synchronize() outside no_sync (or a join's end): ask again after it. NULL if there is no parameter i;
 * ddp_error_last() then says so. */
DDP_API void* ddp_reducer_gradient(ddp_reducer* model, size_t i);
/** Call it before each forward: rank 0's buffers go to all ranks, and inside a join the ranks that have no input left
 * hear that there is another step. Collective, if there are buffers or a join. Under no_sync buffers are left alone,
 * except before the first forward after one that synchronizes, as in PyTorch. */
DDP_API ddp_status ddp_reducer_before_forward(ddp_reducer* model);
/** Backward has produced gradient i of this step. When a bucket is complete (and all before it), its reduction starts.
 * Marking a parameter twice in a step is an error that names it; it is final, for the ranks no longer agree on what
 * comes next: every later call on this model fails with it too. With static_graph, once is as often as in the first
 * step. Inside no_sync it only counts as used. */
DDP_API ddp_status ddp_reducer_mark_ready(ddp_reducer* model, size_t i);
/** With find_unused_parameters: gradient i will not come in this step, so its bucket need not wait for synchronize() to
 * find that out. It is marked ready no more in this step. Inside no_sync, and with static_graph, it does nothing. */
DDP_API ddp_status ddp_reducer_mark_unused(ddp_reducer* model, size_t i);
/** Waits until every gradient is the average over all ranks. A parameter that was never marked is an error that names
 * it, not a hang, and final like one marked twice; with find_unused_parameters this rank adds zeros to its average
 * (but what it has gathered under no_sync since the step before), and if no rank used it its gradient stays as it was.
 * The caller's grads change only once all reductions of the step have succeeded. Inside no_sync it does nothing. */
DDP_API ddp_status ddp_reducer_synchronize(ddp_reducer* model);
/** 1 if any rank used parameter i in the last step, so that its gradient is an average; 0 if none did. */
DDP_API int32_t ddp_reducer_was_used(const ddp_reducer* model, size_t i);
/** enabled = 1: gradients stay local (to be accumulated); 0: the next backward reduces what has accumulated. All ranks
 * must do the same. Source: DistributedDataParallel.no_sync. */
DDP_API ddp_status ddp_reducer_set_no_sync(ddp_reducer* model, int32_t enabled);
/** Number of buckets, for those who tune: so many all_reduces make a step. */
DDP_API size_t ddp_reducer_bucket_count(const ddp_reducer* model);

/** How gradients travel instead of the plain average. Both functions are called by the thread that calls the model, for
 * the same buckets in the same order on every rank, and may issue operations on the model's group or on another one.
 * What they return but DDP_OK aborts the model's group, so that no rank waits for this one, and is what the model's
 * call returns, then and ever after. Source: the hooks of DistributedDataParallel.register_comm_hook, of which start
 * and advance are one and its continuations. */
typedef struct ddp_comm_hook {
  void* context; /**< handed to all of them as it is; must stay until the model is destroyed */
  /** The bucket is full of this rank's own gradients, not divided: the division is the hook's. Called in backward, in
   * the order of the buckets: issue an asynchronous operation, do not wait for it. */
  ddp_status (*start)(void* context, const ddp_grad_bucket* bucket);
  /** Called in synchronize(), for all buckets in order, again and again for those that are not done. Waits for what was
   * issued; then the bucket holds the average, or another stage is issued and *more set to 1 (it is 0 before). */
  ddp_status (*advance)(void* context, const ddp_grad_bucket* bucket, int32_t* more);
  /** Why one of them failed, one line; valid until the next call. May be NULL: ddp_error_last() says it then. */
  const char* (*why)(void* context);
} ddp_comm_hook;
/** Once, before the first backward, on every rank; hook itself is copied. Else DDP_INVALID_ARGUMENT, which is not
 * final. Source: DistributedDataParallel.register_comm_hook. */
DDP_API ddp_status ddp_reducer_register_comm_hook(ddp_reducer* model, const ddp_comm_hook* hook);

/** Communication hooks of libddp's own. Source: torch.distributed.algorithms.ddp_comm_hooks.default_hooks. */
typedef enum ddp_builtin_comm_hook {
  DDP_ALLREDUCE_HOOK = 1,     /**< the average, as without a hook */
  DDP_FP16_COMPRESS_HOOK = 2, /**< the average of gradients rounded to DDP_FLOAT16; 65520 and more become infinite */
  DDP_BF16_COMPRESS_HOOK = 3  /**< the same with DDP_BFLOAT16, whose range is that of a float */
} ddp_builtin_comm_hook;

/** Gradients travel as a ddp_builtin_comm_hook says; otherwise as ddp_reducer_register_comm_hook(). Source:
 * DistributedDataParallel._register_builtin_comm_hook. */
DDP_API ddp_status ddp_reducer_register_builtin_comm_hook(ddp_reducer* model, int32_t hook);

/** How PowerSGD compresses. All zeros: as PyTorch's PowerSGDState. */
typedef struct ddp_powersgd_options {
  size_t size;                      /**< sizeof of this struct; 0: its layout in 0.1.0 */
  size_t matrix_approximation_rank; /**< columns of P and Q; 0 means 1 */
  uint64_t start_powersgd_iter;     /**< so many steps go as plain averages first; 0 means 1000 */
  double min_compression_rate;      /**< a gradient whose P and Q are not this much smaller goes as it is; 0 means 2 */
  int32_t no_error_feedback;        /**< 1: what a step leaves out of the gradients is not added to the next step's */
  int32_t no_warm_start;            /**< 1: each step begins with random numbers, not with the last step's Q */
  uint64_t random_seed;             /**< the same on every rank */
} ddp_powersgd_options;
/** Initial value of a ddp_powersgd_options: its size, and the default of each field. */
#define DDP_POWERSGD_OPTIONS_INIT \
  { sizeof(ddp_powersgd_options), 0, 0, 0, 0, 0, 0 }

/** Gradients travel as products of thin matrices: PowerSGD, of Vogels, Karimireddy and Jaggi (2019). A gradient is the
 * matrix of its first dimension against all others; one that is not worth it, as a vector never is, travels as it is.
 * All options are the same on every rank; options may be NULL. Otherwise as ddp_reducer_register_comm_hook(). Source:
 * powerSGD_hook.PowerSGDState and powerSGD_hook. */
DDP_API ddp_status ddp_reducer_register_powersgd_hook(ddp_reducer* model, const ddp_powersgd_options* options);

/** All zeros: as PyTorch. Equal on all ranks. */
typedef struct ddp_reducer_join_options {
  size_t size;                        /**< sizeof of this struct; 0: its layout in 0.1.0 */
  int32_t divide_by_active_ranks;     /**< 1: gradients are averaged over the ranks that have input, not over all */
  int32_t throw_on_early_termination; /**< 1: as soon as one has none left, all stop */
} ddp_reducer_join_options;
/** Initial value of a ddp_reducer_join_options: its size, and the default of each field. */
#define DDP_REDUCER_JOIN_OPTIONS_INIT \
  { sizeof(ddp_reducer_join_options), 0, 0 }

/** Ranks have different amounts of input from here to ddp_reducer_join_end(). Each step begins with
 * ddp_reducer_before_forward(), in which every rank hears how many have input; where throw_on_early_termination is set
 * and one has none, it fails with DDP_MISMATCH on all ranks and names the first, and the join is over. options may be
 * NULL. Source: DistributedDataParallel.join. */
DDP_API ddp_status ddp_reducer_join_begin(ddp_reducer* model, const ddp_reducer_join_options* options);
/** This rank has no input left. It takes part in the others' steps, with zeros, until none has any; then parameters and
 * buffers become those of the last that had, of several the highest rank. Gradients in buckets mean nothing
 * afterwards. */
DDP_API ddp_status ddp_reducer_join_end(ddp_reducer* model);
/** The loop ended by an error instead: this rank goes on without the others, which wait for it until their deadline. */
DDP_API void ddp_reducer_join_cancel(ddp_reducer* model);

/** @} */

/**
 * @defgroup optimizer Optimizers: arithmetic on gradients and weights
 *
 * What stands between averaged gradients and new weights, on arrays in the CPU's memory: ddp::AdamW, ddp::GradScaler
 * and the others of ddp/ddp.hpp are made of it. Nothing here communicates or keeps anything; any thread may call.
 * Results are the same bits on every processor.
 *
 * @{
 */

/** Copies from into to, both of floating point and of equal count, and rounds to the nearest, ties to even. One of them
 * is DDP_FLOAT32, or both are of one type. They must not overlap. */
DDP_API ddp_status ddp_buffer_convert(ddp_buffer from, ddp_buffer to);
/** to becomes from times factor; types as of ddp_buffer_convert(), and from may be to. 16 bits are multiplied in 32.
 * *found_inf: 1 if an element of to is infinite or not a number, else left as it is; may be NULL. Source:
 * torch._amp_foreach_non_finite_check_and_unscale_. */
DDP_API ddp_status ddp_buffer_multiply(ddp_buffer from, ddp_buffer to, double factor, int32_t* found_inf);
/** *sum: the sum of the absolute values, each to the power of norm_type; for the norm type INFINITY the largest. Made
 * in 64 bits. Those of several buffers, and of several ranks, are added (or the largest taken); the root of that is the
 * norm. norm_type is above 0. Source: torch.nn.utils.get_total_norm. */
DDP_API ddp_status ddp_buffer_power_sum(ddp_buffer buffer, double norm_type, double* sum);

/** The numbers of one step of AdamW. Each counts as it is, zeros too; PyTorch's defaults are said. */
typedef struct ddp_adamw_options {
  size_t size;         /**< sizeof of this struct; 0: its layout in 0.1.0 */
  double lr;           /**< learning rate; 1e-3 */
  double beta1;        /**< how much of the gradients' mean is kept; 0.9 */
  double beta2;        /**< how much of their squares' mean is kept; 0.999 */
  double eps;          /**< 1e-8 */
  double weight_decay; /**< 1e-2 */
  int32_t maximize;    /**< 1: the step goes up; 0 */
  int64_t step;        /**< which one this is, from 1 on */
} ddp_adamw_options;
/** Initial value of a ddp_adamw_options: its size, and the default of each field. */
#define DDP_ADAMW_OPTIONS_INIT \
  { sizeof(ddp_adamw_options), 1e-3, 0.9, 0.999, 1e-8, 1e-2, 0, 1 }

/** What it works on: count elements of DDP_FLOAT32 or DDP_FLOAT64 each, a parameter's or any part of it. */
typedef struct ddp_adamw_arrays {
  void* value;      /**< the weights */
  const void* grad; /**< their gradients */
  void* exp_avg;    /**< the gradients' running mean; zeros at first */
  void* exp_avg_sq; /**< that of their squares; likewise */
  void* updated;    /**< where the new weights go; NULL: into value */
  size_t count;     /**< in elements */
  int32_t dtype;    /**< of all of them */
} ddp_adamw_arrays;

/** One step of AdamW. DDP_INVALID_ARGUMENT for another type, or a step below 1. Source: torch.optim.AdamW, in whose
 * order it computes. */
DDP_API ddp_status ddp_adamw_step(const ddp_adamw_options* numbers, const ddp_adamw_arrays* arrays);

/** The numbers of one step of stochastic gradient descent, each as it is. */
typedef struct ddp_sgd_options {
  size_t size;         /**< sizeof of this struct; 0: its layout in 0.1.0 */
  double lr;           /**< learning rate; PyTorch's default is 1e-3, that of all others 0 */
  double momentum;     /**< how much of the last direction is kept */
  double dampening;    /**< how much of the gradient is left out then */
  double weight_decay; /**< added to the gradient, times the weight */
  int32_t nesterov;    /**< 1: Nesterov's momentum; needs a momentum, and no dampening */
  int32_t maximize;    /**< 1: the step goes up */
  int64_t step;        /**< which one this is, from 1 on */
} ddp_sgd_options;
/** Initial value of a ddp_sgd_options: its size, and the default of each field. */
#define DDP_SGD_OPTIONS_INIT \
  { sizeof(ddp_sgd_options), 1e-3, 0, 0, 0, 0, 0, 1 }

/** What it works on: as of ddp_adamw_arrays. */
typedef struct ddp_sgd_arrays {
  void* value;           /**< the weights */
  const void* grad;      /**< their gradients */
  void* momentum_buffer; /**< the last direction, zeros at first; NULL without momentum */
  void* updated;         /**< where the new weights go; NULL: into value */
  size_t count;          /**< in elements */
  int32_t dtype;         /**< of all of them */
} ddp_sgd_arrays;

/** One step of stochastic gradient descent. DDP_INVALID_ARGUMENT for another type, a step below 1, momentum without its
 * array, or Nesterov's without momentum. Source: torch.optim.SGD. */
DDP_API ddp_status ddp_sgd_step(const ddp_sgd_options* numbers, const ddp_sgd_arrays* arrays);

/** @} */

/**
 * @defgroup batch_norm SyncBatchNorm
 *
 * Batch normalisation whose statistics are those of the batch of all ranks of a group. Its two collectives, an
 * all_gather forward and an all_reduce backward, are the group's: one thread at a time, the group's errors and timeout.
 * A rank without a row takes part as well. Everything is computed in double, elements are rounded once (of 16 bits:
 * through float32); all ranks use the same bits. Nothing is allocated after creation. This is for the memory of the
 * CPU; of a GPU see ddp/sync_batch_norm.cuh. Source: torch.nn.SyncBatchNorm.
 *
 * @{
 */

/** What a batch normalisation works with, `channels` elements each. Never owned; must stay. All zeros: no weight, no
 * bias, no running statistics. */
typedef struct ddp_sync_batch_norm_tensors {
  void* weight;                 /**< NULL: 1 */
  void* bias;                   /**< NULL: 0 */
  void* weight_grad;            /**< this rank's gradient is added to it; NULL: not asked for */
  void* bias_grad;              /**< likewise */
  void* running_mean;           /**< NULL, and running_var too: not tracked. Starts as 0 */
  void* running_var;            /**< of the unbiased variance. Starts as 1 */
  int64_t* num_batches_tracked; /**< one number; NULL: counted inside, from 0 on */
} ddp_sync_batch_norm_tensors;

/** All zeros: as PyTorch. */
typedef struct ddp_sync_batch_norm_options {
  size_t size;                /**< sizeof of this struct; 0: its layout in 0.1.0 */
  int32_t dtype;              /**< of the tensors: DDP_FLOAT32 or DDP_FLOAT64 */
  int32_t cumulative_average; /**< 1: running statistics are the mean over all batches; torch's momentum=None */
  int32_t channels_last;      /**< 1: elements lie as rows x length x channels; 0: rows x channels x length */
  double eps;                 /**< added to the variance; 0 means 1e-5 */
  double momentum;            /**< of a new batch in the running statistics; 0 means 0.1 */
} ddp_sync_batch_norm_options;
/** Initial value of a ddp_sync_batch_norm_options: its size, and the default of each field. */
#define DDP_SYNC_BATCH_NORM_OPTIONS_INIT \
  { sizeof(ddp_sync_batch_norm_options), 0, 0, 0, 0, 0 }

/** A batch normalisation. Made by ddp_sync_batch_norm_create(). */
typedef struct ddp_sync_batch_norm ddp_sync_batch_norm;

/** Not collective, but every rank must give as many channels. tensors and options may be NULL. Destroy it before its
 * session. */
DDP_API ddp_status ddp_sync_batch_norm_create(ddp_group* group, size_t channels,
                                              const ddp_sync_batch_norm_tensors* tensors,
                                              const ddp_sync_batch_norm_options* options, ddp_sync_batch_norm** out);
/** NULL is allowed. */
DDP_API void ddp_sync_batch_norm_destroy(ddp_sync_batch_norm* norm);
/** training = 1, as at first: batches are normalised by their own statistics, which move the running ones. 0: by the
 * running ones, nothing is exchanged; without any by this rank's batch, as PyTorch does. All ranks do the same. */
DDP_API ddp_status ddp_sync_batch_norm_set_training(ddp_sync_batch_norm* norm, int32_t training);
/** output = (input - mean) / sqrt(variance + eps) * weight + bias, by channel. length: values a row and channel, 1 for
 * a batch of rows x channels, height x width for images; rows follow from input.count. input is of the tensors' type,
 * or of a 16-bit floating point one with float32 tensors; output is like it, and may be the same memory if there is no
 * backward. Collective in training. DDP_INVALID_ARGUMENT on every rank if they have fewer than 2 values a channel
 * together, DDP_MISMATCH if one has other channels than rank 0, which the first forward in training finds out; the
 * group is then as it was. */
DDP_API ddp_status ddp_sync_batch_norm_forward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer output,
                                               size_t length);
/** Of the last forward, whose input is given again: grad_input becomes the gradient of the loss of all ranks by this
 * rank's input; it may be grad_output's memory. Gradients of weight and bias are this rank's part, to be averaged
 * with the others' (ddp_reducer). Collective after a forward in training. For a layer that is called twice before
 * backward make two of these over the same tensors. */
DDP_API ddp_status ddp_sync_batch_norm_backward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer grad_output,
                                                ddp_buffer grad_input);

/** @} */

/**
 * @defgroup checkpoint Checkpoints: files in the safetensors format, and folders of them
 *
 * One file, written by one rank, or a folder in which each step has a folder of its own, written by as many ranks as
 * like. Whatever is killed at whatever moment, what was saved before can be read. Memory is the CPU's.
 *
 * @{
 */

/** A named tensor to be saved. Never owns. */
typedef struct ddp_tensor {
  const char* name;     /**< unique in its file */
  const void* data;     /**< as many elements as the shape says, row-major */
  int32_t dtype;        /**< ddp_dtype */
  const int64_t* shape; /**< rank entries; an empty shape is a scalar */
  size_t rank;          /**< number of dimensions */
} ddp_tensor;

/** A line of text that a checkpoint carries beside its tensors. */
typedef struct ddp_metadata_entry {
  const char* key;   /**< unique in its file */
  const char* value; /**< UTF-8 */
} ddp_metadata_entry;

/** Writes to a temporary name beside path, fsyncs, renames: a crash leaves the previous file or the new one, never half
 * of one. Tensors are stored in the order given. Call it on one rank, then let the others wait, for example in a
 * barrier. Any thread. DDP_INVALID_ARGUMENT if a name is empty or given twice, DDP_SYSTEM if the file cannot be
 * written; the previous one is untouched then. metadata may be NULL if metadata_count is 0. */
DDP_API ddp_status ddp_checkpoint_save(const char* path, const ddp_tensor* tensors, size_t tensor_count,
                                       const ddp_metadata_entry* metadata, size_t metadata_count);
/** Opens a safetensors file, whoever wrote it, or the folder of one step: step-000000500 in that of
 * ddp_checkpoint_folder_create(). DDP_CORRUPT if its header or record is truncated or malformed, DDP_SYSTEM if it
 * cannot be read. What was opened may be used by any thread. */
DDP_API ddp_status ddp_checkpoint_open(const char* path, ddp_checkpoint** out);
/** Closes it. NULL is allowed. */
DDP_API void ddp_checkpoint_close(ddp_checkpoint* checkpoint);
/** The step it was saved under; -1 of a plain file. */
DDP_API int64_t ddp_checkpoint_step(const ddp_checkpoint* checkpoint);
/** The value of a key, or NULL if there is no such key. Valid until the checkpoint is closed. */
DDP_API const char* ddp_checkpoint_metadata(const ddp_checkpoint* checkpoint, const char* key);
/** How many tensors it has. */
DDP_API size_t ddp_checkpoint_tensor_count(const ddp_checkpoint* checkpoint);
/** *out: what tensor i is, in the order of names; its data is NULL, its dtype -1 if it is one that only others use.
 * Valid until the checkpoint is closed. */
DDP_API ddp_status ddp_checkpoint_tensor(const ddp_checkpoint* checkpoint, size_t i, ddp_tensor* out);
/** Copies tensor `name` into buffer. DDP_MISMATCH if its type or shape differs from what is asked for, DDP_CORRUPT if
 * there is no such tensor, or its bytes are not what was written: the text names file, tensor and bytes. shape has rank
 * entries, whose product is buffer.count; it may be NULL if rank is 0. */
DDP_API ddp_status ddp_checkpoint_read(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                       const int64_t* shape, size_t rank);
/** The same of a slice: shape[d] elements from offset[d] on in each dimension, however it was sliced when it was saved.
 * Reads no more than it needs. */
DDP_API ddp_status ddp_checkpoint_read_slice(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                             const int64_t* offset, const int64_t* shape, size_t rank);
/** Reads everything and compares it with its checksums. DDP_CORRUPT names the first file and tensor that is not as it
 * was written. A plain file has no checksums: DDP_OK. */
DDP_API ddp_status ddp_checkpoint_verify(const ddp_checkpoint* checkpoint);

/** What a rank saves of a tensor: all of it, or a slice. Never owns. */
typedef struct ddp_tensor_slice {
  ddp_tensor part;            /**< the elements that are here: the slice's shape, the whole tensor's name */
  const int64_t* offset;      /**< part.rank entries: where it begins in each dimension; NULL: it is the whole tensor */
  const int64_t* whole_shape; /**< part.rank entries; NULL if and only if offset is */
} ddp_tensor_slice;

/** How a folder is used. All zeros: keep everything. */
typedef struct ddp_checkpoint_folder_options {
  size_t size;        /**< sizeof of this struct; 0: its layout in 0.1.0 */
  int64_t keep_last;  /**< after each save, of the steps up to it only so many stay; 0: all */
  int64_t keep_every; /**< and the multiples of this beside them; 0: none */
  int64_t timeout_ms; /**< for a save in flight, and for the other ranks at each point where all meet; 0: the group's,
                         or 30 minutes */
  int32_t read_only;  /**< 1: nothing is created or saved here */
} ddp_checkpoint_folder_options;
/** Initial value of a ddp_checkpoint_folder_options: its size, and the default of each field. */
#define DDP_CHECKPOINT_FOLDER_OPTIONS_INIT \
  { sizeof(ddp_checkpoint_folder_options), 0, 0, 0, 0 }

/** Opens a folder, creating it if need be:
 *
 *     step-000000500/model-00001-of-00002.safetensors    what each rank that had something to save has written
 *     step-000000500/model-00002-of-00002.safetensors
 *     step-000000500/model.safetensors.index.json        Hugging Face's index, if no tensor is sliced
 *     step-000000500/checkpoint.json                     which slice of which tensor lies where, with checksums
 *
 * A step gets its name when all of it is on the disk. Of one training; the folder must be on a file system that all
 * ranks share.
 *
 * group: the ranks that save together; collective over it, which gives the folder a group of its own. NULL: this
 * process alone. options may be NULL. One thread at a time. Errors of one rank are those of all: DDP_SYSTEM if it
 * cannot be written to. */
DDP_API ddp_status ddp_checkpoint_folder_create(ddp_group* group, const char* path,
                                                const ddp_checkpoint_folder_options* options,
                                                ddp_checkpoint_folder** out);
/** Waits for a save in flight. Before the session ends. NULL is allowed. */
DDP_API void ddp_checkpoint_folder_destroy(ddp_checkpoint_folder* folder);
/** Collective: saves what the ranks give, each of them what it is to write: all on rank 0 and nothing elsewhere, or
 * each its own tensors and slices. Together they make every tensor whole, each element once. step is not negative and
 * equal on all; one that is there is replaced. Rank 0's metadata counts.
 *
 * When it returns, the step is on the disk. If one rank fails (no space, no permission, a tensor that is not whole),
 * all fail with its words, and what was saved before is as it was; save again when you like. If one is lost or late,
 * the others fail with DDP_PEER_LOST or DDP_TIMEOUT, and so does every later save: create the folder anew. */
DDP_API ddp_status ddp_checkpoint_folder_save(ddp_checkpoint_folder* folder, int64_t step,
                                              const ddp_tensor_slice* slices, size_t count,
                                              const ddp_metadata_entry* metadata, size_t metadata_count);
/** The same, but returns once the tensors are copied; a thread of the folder's writes the copy. *save: for
 * ddp_checkpoint_folder_wait(). One at a time: waits for the save before, and if that failed and nobody has waited for
 * it, returns what it failed with instead. Memory for the copy is kept until the folder is destroyed. Source:
 * torch.distributed.checkpoint.async_save, which leaves that waiting to its caller. */
DDP_API ddp_status ddp_checkpoint_folder_save_async(ddp_checkpoint_folder* folder, int64_t step,
                                                    const ddp_tensor_slice* slices, size_t count,
                                                    const ddp_metadata_entry* metadata, size_t metadata_count,
                                                    uint64_t* save);
/** Waits until that save has ended, and returns what it failed with. timeout_ms 0: the folder's; a deadline that passes
 * is DDP_TIMEOUT and leaves the save going on. */
DDP_API ddp_status ddp_checkpoint_folder_wait(ddp_checkpoint_folder* folder, uint64_t save, int64_t timeout_ms);
/** 1 if that save has ended, 0 if not. Does not wait. */
DDP_API int32_t ddp_checkpoint_folder_has_ended(ddp_checkpoint_folder* folder, uint64_t save);
/** *count: how many steps there are; the first `capacity` of them, in ascending order, are put into steps, which may be
 * NULL if that is 0. Not collective. */
DDP_API ddp_status ddp_checkpoint_folder_steps(ddp_checkpoint_folder* folder, int64_t* steps, size_t capacity,
                                               size_t* count);
/** Opens the checkpoint of a step. Not collective. */
DDP_API ddp_status ddp_checkpoint_folder_open_step(ddp_checkpoint_folder* folder, int64_t step, ddp_checkpoint** out);
/** Collective: opens the newest checkpoint, the same on every rank; *out is NULL if there is none. Waits for a save in
 * flight. With verify = 1 the ranks first read all of it, each some of the files; if not every byte is as it was
 * written, skipped is given one line that says what is wrong, and the next older one is tried. DDP_CORRUPT if none is
 * left. skipped.deliver may be NULL. */
DDP_API ddp_status ddp_checkpoint_folder_open_latest(ddp_checkpoint_folder* folder, int32_t verify, ddp_sink skipped,
                                                     ddp_checkpoint** out);

/** @} */

/**
 * @defgroup store Stores: keys and values that ranks share
 *
 * As torch.distributed has them; with its protocol and file format, so that ranks in Python can share them too. What is
 * not said of a function is as with the method of its name in torch.distributed.Store.
 *
 * Every call ends. timeout_ms: how long to wait; 0 means the store's timeout, which is also that of calls without one.
 * A deadline that passes is DDP_TIMEOUT, its text names store, key and how long, and the store remains usable. Any
 * thread may call.
 *
 * @{
 */

/** A client of a torch.distributed.TCPStore: ddprun's, torchrun's, or any PyTorch program's since 2.2. Connects,
 * retrying with growing pauses until timeout_ms have passed (0 means 5 minutes; also the store's timeout). count_in: 1
 * to be one of the workers that a dist.TCPStore(world_size=...) waits for. Keys up to 8191 bytes, values up to 8 MiB,
 * 131072 keys a call: beyond that DDP_INVALID_ARGUMENT. A lost connection is DDP_SYSTEM, then and ever after. Calls are
 * served one after the other: give each thread that waits its own. */
DDP_API ddp_status ddp_store_create_tcp(const char* host, int32_t port, int64_t timeout_ms, int32_t count_in,
                                        ddp_store** out);
/** A file that all ranks can open, in the format of torch.distributed.FileStore. Created if it is not there; its folder
 * must be. The last of world_size to destroy its store removes the file; with a negative world_size nobody does, nor if
 * a process was killed: give each run a file of its own. Has no queues. DDP_CORRUPT if the file holds something else.
 */
DDP_API ddp_status ddp_store_create_file(const char* path, int64_t world_size, int64_t timeout_ms, ddp_store** out);
/** A store inside this process, as torch.distributed.HashStore. */
DDP_API ddp_status ddp_store_create_hash(int64_t timeout_ms, ddp_store** out);
/** base, every key with prefix and "/" before it, as torch.distributed.PrefixStore. base must outlive it, and has its
 * timeout. */
DDP_API ddp_status ddp_store_create_prefix(const char* prefix, ddp_store* base, ddp_store** out);
/** Ends a store that was created. NULL is allowed. */
DDP_API void ddp_store_destroy(ddp_store* store);
/** For connecting anew and for every call without a timeout of its own. On a prefix store: of the store under it. */
DDP_API ddp_status ddp_store_set_timeout(ddp_store* store, int64_t timeout_ms);

/** Makes value the key's value, whatever was there. */
DDP_API ddp_status ddp_store_set(ddp_store* store, const char* key, ddp_bytes value);
/** Delivers the key's value; waits until it exists. */
DDP_API ddp_status ddp_store_get(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/** Adds to a number. *sum: the decimal number there plus delta, which becomes the value; a missing key counts as 0.
 * Where there is no number: DDP_INVALID_ARGUMENT, but a TCP store loses its connection (DDP_SYSTEM), as PyTorch's does.
 */
DDP_API ddp_status ddp_store_add(ddp_store* store, const char* key, int64_t delta, int64_t* sum);
/** Looks, without waiting. *all: 1 if all exist now. A queue that is not empty counts as its key. */
DDP_API ddp_status ddp_store_check(ddp_store* store, const char* const* keys, size_t count, int32_t* all);
/** Waits until ddp_store_check() would say 1. */
DDP_API ddp_status ddp_store_wait(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms);
/** Sets desired if the value is expected; a missing key counts as one with an empty value. Delivers the value after
 * that, but expected if the key is missing and expected is not empty (as every PyTorch answers). */
DDP_API ddp_status ddp_store_compare_set(ddp_store* store, const char* key, ddp_bytes expected, ddp_bytes desired,
                                         ddp_sink sink);
/** Puts value behind what is there; a missing key is created. */
DDP_API ddp_status ddp_store_append(ddp_store* store, const char* key, ddp_bytes value);
/** Removes a key. *deleted: 1 if it was there. Queues cannot be deleted. */
DDP_API ddp_status ddp_store_delete_key(ddp_store* store, const char* key, int32_t* deleted);
/** How many keys there are. Of the whole store, whatever the prefix, its own counters among them. */
DDP_API ddp_status ddp_store_num_keys(ddp_store* store, int64_t* count);
/** Delivers every key, in no order; with a prefix those that have it, without it. */
DDP_API ddp_status ddp_store_list_keys(ddp_store* store, ddp_sink sink);
/** Delivers the values of several keys; waits until all exist; in the order of the keys. */
DDP_API ddp_status ddp_store_multi_get(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms,
                                       ddp_sink sink);
/** Sets several keys at once: count keys, count values. */
DDP_API ddp_status ddp_store_multi_set(ddp_store* store, const char* const* keys, const ddp_bytes* values,
                                       size_t count);

/** Puts value at a queue's end. Queues: first in, first out; their names are apart from keys. DDP_INVALID_ARGUMENT on a
 * file; DDP_SYSTEM, and the connection is lost, with a PyTorch server before 2.8 or with use_libuv=False. */
DDP_API ddp_status ddp_store_queue_push(ddp_store* store, const char* key, ddp_bytes value);
/** Delivers the oldest element and takes it away; waits for one. */
DDP_API ddp_status ddp_store_queue_pop(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/** Takes the oldest element if there is one. *popped: 1 if there was an element, which is delivered. */
DDP_API ddp_status ddp_store_queue_try_pop(ddp_store* store, const char* key, int32_t* popped, ddp_sink sink);
/** *length: how many elements the queue has; 0 if there is none of that name. */
DDP_API ddp_status ddp_store_queue_len(ddp_store* store, const char* key, int64_t* length);

/** Returns once world_size (at least 1) calls with this key were made. For one use: afterwards the key stays open, and
 * a call that ran out of time has counted all the same. */
DDP_API ddp_status ddp_store_barrier(ddp_store* store, const char* key, int64_t world_size, int64_t timeout_ms);

/** @} */

/**
 * @defgroup spawn Processes that a program starts itself
 *
 * The ranks of a job on this machine, without ddprun: each is a copy of the calling process (fork) that runs one
 * function. Source: torch.multiprocessing.spawn and start_processes.
 *
 * @{
 */

/** What ddp_spawn() started. */
typedef struct ddp_spawned ddp_spawned;

/** What a process does. Returns DDP_OK, or what failed after writing the reason, NUL-terminated, into the why_size
 * bytes at why; without a reason it is ddp_error_last(). context is ddp_spawn()'s, in the process's own copy of the
 * memory. */
typedef ddp_status (*ddp_spawn_function)(int32_t rank, void* context, char* why, size_t why_size);

/** Zero is the default of each. */
typedef struct ddp_spawn_options {
  size_t size;      /**< sizeof of this struct; 0: its layout in 0.1.0 */
  int32_t daemon;   /**< 1: ddp_spawn_destroy() stops the processes that still run; 0: it waits for them */
  int64_t grace_ms; /**< from SIGTERM to SIGKILL for those that are stopped; 0 means 30 s */
} ddp_spawn_options;
/** Initial value of a ddp_spawn_options: its size, and the default of each field. */
#define DDP_SPAWN_OPTIONS_INIT \
  { sizeof(ddp_spawn_options), 0, 0 }

/** Which process failed, and how it ended. */
typedef struct ddp_spawn_failure {
  int32_t rank;      /**< the one that failed first */
  int32_t exit_code; /**< -1: it has none */
  int32_t signal;    /**< that killed it; 0: none */
} ddp_spawn_failure;

/** Starts nprocs processes that each run the function: with RANK, LOCAL_RANK and WORLD_SIZE, a store of this process's
 * at MASTER_ADDR and MASTER_PORT, and nothing to read on stdin. Returns once they run. options may be NULL.
 *
 * DDP_INVALID_ARGUMENT if this process cannot be copied: it has other threads, a session, or has used CUDA. A process
 * ends when its function returns; it runs no exit handlers, which are its parent's. The kernel kills the processes if
 * the calling thread ends before them. */
DDP_API ddp_status ddp_spawn(ddp_spawn_function function, void* context, int32_t nprocs,
                             const ddp_spawn_options* options, ddp_spawned** out);
/** Waits until all have ended. When one fails (its function does, it is killed, it exits with a code that is not 0),
 * the others hear of it as from ddprun, and are stopped. Then the status is the function's, else DDP_SYSTEM, the text
 * names the rank and the reason, and *failure, which may be NULL, is filled in. */
DDP_API ddp_status ddp_spawn_join(ddp_spawned* spawned, ddp_spawn_failure* failure);
/** As ddp_spawn_join(), for timeout_ms at most; 0 only looks. *ended: 1 if all have ended. */
DDP_API ddp_status ddp_spawn_join_for(ddp_spawned* spawned, int64_t timeout_ms, int32_t* ended,
                                      ddp_spawn_failure* failure);
/** The process's id; -1 if there is no such rank. */
DDP_API int64_t ddp_spawn_pid(const ddp_spawned* spawned, int32_t rank);
/** Waits for the processes that are left, or stops them: see ddp_spawn_options. NULL is allowed. */
DDP_API void ddp_spawn_destroy(ddp_spawned* spawned);

/** @} */

/**
 * @defgroup failure What a worker tells its launcher
 * @{
 */

/** Writes message, in the launcher's format, to the file named by TORCHELASTIC_ERROR_FILE: ddprun and torchrun print it
 * in their failure report. Returns 1 if that was done, 0 without that variable or if the file cannot be written: then
 * nobody but the caller will say it. */
DDP_API int ddp_error_record(const char* message);

/** From now on the same file tells of a crash: a fatal signal (SEGV, BUS, FPE, ILL, ABRT, SYS, TRAP), an exception that
 * nobody catches, std::terminate, or a failed check inside libddp, with its reason and a backtrace. The process dies as
 * it would have anyway: by the same signal, with the same core dump.
 * ddp_session_init does it; call it yourself to cover what comes before, and in each further thread whose stack
 * may overflow. Signals that are handled or ignored by then are left alone (Python's faulthandler, sanitizers, your own
 * handlers), as is an error file that is already there. DDP_FAILURE_HANDLERS=0 in the environment turns it off.
 * A backtrace names functions that their module exports (link with -rdynamic for those of a program), and of the others
 * the offset, which `addr2line -Cfe MODULE OFFSET` turns into function and line: "./train(+0x1234)[0x55...]".
 * Returns 1 if crashes will be recorded, 0 without TORCHELASTIC_ERROR_FILE or if turned off. */
DDP_API int ddp_failure_handlers_install(void);

/** Writes what each group of this process did last to a file at path: JSON, in place at once. Any thread may call, also
 * while operations run. The same file is written by itself when an operation fails or the process crashes, to
 * flight_recorder_rank<rank>.json beside the error file. It has the last 256 operations of each group, or as many as
 * DDP_FLIGHT_RECORDER_SIZE says (0: none). DDP_SYSTEM if it cannot be written. Source: the flight recorder of PyTorch's
 * ProcessGroupNCCL. */
DDP_API ddp_status ddp_flight_recorder_dump(const char* path);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
