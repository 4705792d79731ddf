/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Operations of a group: collectives on buffers and on objects, messages between two ranks, asynchronous work.
 */
#ifndef DDP_C_COLLECTIVES_H
#define DDP_C_COLLECTIVES_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup collectives Collectives and messages
 *
 * Each function describes an operation in a ddp_operation and gives it to ddp_issue(). With a work, it returns at once;
 * without one (NULL) it returns when the operation has ended.
 *
 * timeout_ms is the deadline from issue to end; 0 means the group's. When it passes, the group is aborted: this
 * operation fails on every rank sooner or later, and all later ones at once (DDP_ABORTED). Calls without a work run on
 * the caller's thread after all operations issued before. Buffers must stay valid until the operation ends; their
 * content after a failure is unspecified.
 *
 * With DDP_DEBUG=detail in the environment of all ranks, they compare what they are about to do before each collective.
 * A difference is DDP_MISMATCH on every rank, names each caller and its call, and ends the group. A message that its
 * receiver does not expect is DDP_MISMATCH there, and DDP_PEER_LOST at its sender, whose error quotes the receiver's.
 * Without DDP_DEBUG=detail, the backend "ddp" compares fingerprints of all calls so far: a difference is an error on
 * every rank, in this operation or at the latest in the next one in which all ranks wait for each other; until then
 * results may be wrong. With "gloo", sizes that differ between ranks may end the process inside the backend, and other
 * differences last until the deadline. Calls on the memory of GPUs are not compared.
 *
 * @{
 */

/** How contributions are combined. The order of a sum depends on the number of ranks and the element's place, never on
 * which rank arrives first. */
typedef enum ddp_reduce_op {
  DDP_SUM = 0,       /**< integers wrap */
  DDP_AVG = 1,       /**< each contribution times 1/N, then summed, as PyTorch's DDP does; floating point only */
  DDP_PRODUCT = 2,   /**< integers wrap */
  DDP_MIN = 3,       /**< the smallest; NaN if any rank has NaN, as torch.minimum; "nccl" ignores NaN */
  DDP_MAX = 4,       /**< the largest; NaN if any rank has NaN, as torch.maximum; "nccl" ignores NaN */
  DDP_BAND = 5,      /**< bitwise and; integers only */
  DDP_BOR = 6,       /**< bitwise or; integers only */
  DDP_BXOR = 7,      /**< bitwise exclusive or; integers only */
  DDP_PREMUL_SUM = 8 /**< each contribution times its rank's factor, then summed; floating point only */
} ddp_reduce_op;

/** A reduction: an operation, and for DDP_PREMUL_SUM a factor. */
typedef struct ddp_reduction {
  int32_t op;    /**< ddp_reduce_op */
  double factor; /**< this rank's factor for DDP_PREMUL_SUM; unused otherwise */
} ddp_reduction;

/** Kind of an operation. */
typedef enum ddp_operation_kind {
  DDP_ALL_REDUCE = 0,         /**< ddp_all_reduce() */
  DDP_REDUCE = 1,             /**< ddp_reduce() */
  DDP_BROADCAST = 2,          /**< ddp_broadcast() */
  DDP_ALL_GATHER = 3,         /**< ddp_all_gather() */
  DDP_GATHER = 4,             /**< ddp_gather() */
  DDP_SCATTER = 5,            /**< ddp_scatter() */
  DDP_REDUCE_SCATTER = 6,     /**< ddp_reduce_scatter() */
  DDP_ALL_TO_ALL = 7,         /**< ddp_all_to_all() */
  DDP_BARRIER = 8,            /**< ddp_barrier() */
  DDP_MONITORED_BARRIER = 9,  /**< ddp_monitored_barrier() */
  DDP_SEND = 10,              /**< ddp_send() */
  DDP_RECV = 11,              /**< ddp_recv() */
  DDP_BROADCAST_OBJECT = 12,  /**< ddp_broadcast_object() */
  DDP_ALL_GATHER_OBJECT = 13, /**< ddp_all_gather_object() */
  DDP_GATHER_OBJECT = 14,     /**< ddp_gather_object() */
  DDP_SCATTER_OBJECT = 15     /**< ddp_scatter_object() */
} ddp_operation_kind;

/** One operation of any kind. A field that the kind does not use is ignored. */
typedef struct ddp_operation {
  size_t size;                 /**< sizeof(ddp_operation) */
  int32_t kind;                /**< ddp_operation_kind */
  int32_t root;                /**< root of a collective; the other rank of a message */
  uint32_t tag;                /**< a number that both sides of a message give */
  int32_t wait_all_ranks;      /**< DDP_MONITORED_BARRIER: 1 names all missing ranks */
  int64_t timeout_ms;          /**< from issue to end; 0: the group's */
  ddp_buffer input;            /**< what is only read */
  ddp_buffer output;           /**< what is written; of an operation in place, what is read too */
  ddp_reduction reduction;     /**< for the kinds that reduce */
  const size_t* input_counts;  /**< DDP_ALL_TO_ALL: elements for each rank; NULL: equal parts */
  const size_t* output_counts; /**< DDP_ALL_TO_ALL: elements from each rank; NULL: equal parts */
  const ddp_bytes* objects;    /**< what this rank gives: one, or to DDP_SCATTER_OBJECT one for each rank */
  size_t object_count;         /**< number of objects */
  ddp_sink sink;               /**< receives objects */
  int32_t* sender;             /**< DDP_RECV without a work: becomes the rank the message came from; may be NULL */
} ddp_operation;

/** One asynchronous operation: the group it runs in and its sequence number there. A plain value, which owns nothing:
 * give it to one of the ddp_work_ functions below before its buffers end. */
typedef struct ddp_work {
  ddp_group* group;  /**< where it was issued */
  uint64_t sequence; /**< number of the collective within its group, starting at 1; messages have large numbers */
} ddp_work;

/** Issues an operation. If work is NULL, it waits until the operation has ended. Otherwise *work names the operation,
 * which runs in order on a thread of the group, and its buffers belong to it until a wait has reported its end. Wrong
 * arguments, or a group that has already failed, are this call's status; later failures are the status of the wait.
 * DDP_MONITORED_BARRIER and collectives on objects take no work. Source: async_op=True of PyTorch. */
DDP_API ddp_status ddp_issue(ddp_group* group, const ddp_operation* operation, ddp_work* work);

/* NOLINTBEGIN(modernize-use-nullptr): the functions below are C. */

/** Returns a description with zeros in all other fields, to be filled in. */
static inline ddp_operation ddp_operation_of(int32_t kind, int32_t root, int64_t timeout_ms) {
  const ddp_buffer none = {NULL, 0, 0, {DDP_CPU, 0}};
  const ddp_operation operation = {sizeof(ddp_operation), kind, root, 0,    0, timeout_ms,   none, none,
                                   {DDP_SUM, 0},          NULL, NULL, NULL, 0, {NULL, NULL}, NULL};
  return operation;
}
/** Issues an operation on buffers; reduction may be NULL. */
static inline ddp_status ddp_issue_on(ddp_group* group, int32_t kind, ddp_buffer input, ddp_buffer output,
                                      const ddp_reduction* reduction, int32_t root, int64_t timeout_ms,
                                      ddp_work* work) {
  ddp_operation operation = ddp_operation_of(kind, root, timeout_ms);
  operation.input = input;
  operation.output = output;
  if (reduction != NULL) operation.reduction = *reduction;
  return ddp_issue(group, &operation, work);
}

/** Reduces in place: every rank's buffer becomes the reduction over all ranks, bitwise equal on all of them. Count,
 * type and reduction must be the same on every rank. Source: torch.distributed.all_reduce. */
static inline ddp_status ddp_all_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction,
                                        int64_t timeout_ms, ddp_work* work) {
  return ddp_issue_on(group, DDP_ALL_REDUCE, buffer, buffer, &reduction, 0, timeout_ms, work);
}
/** Reduces in place on root; the content of the other ranks' buffers is unspecified afterwards. Count, type, reduction
 * and root must be the same on every rank. Source: torch.distributed.reduce. */
static inline ddp_status ddp_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                                    int64_t timeout_ms, ddp_work* work) {
  return ddp_issue_on(group, DDP_REDUCE, buffer, buffer, &reduction, root, timeout_ms, work);
}
/** Copies root's buffer into every rank's buffer. Count, type and root must be the same on every rank. Source:
 * torch.distributed.broadcast. */
static inline ddp_status ddp_broadcast(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms,
                                       ddp_work* work) {
  return ddp_issue_on(group, DDP_BROADCAST, buffer, buffer, NULL, root, timeout_ms, work);
}
/** Gathers every rank's input on every rank. output has size * input.count elements: rank r's input is at
 * r * input.count. The input is not changed; count and type must be the same on every rank. Source:
 * torch.distributed.all_gather_into_tensor. */
static inline ddp_status ddp_all_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms,
                                        ddp_work* work) {
  return ddp_issue_on(group, DDP_ALL_GATHER, input, output, NULL, 0, timeout_ms, work);
}
/** Gathers every rank's input on root, laid out as by ddp_all_gather(); output is ignored on the other ranks. Source:
 * torch.distributed.gather, into one buffer. */
static inline ddp_status ddp_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                    int64_t timeout_ms, ddp_work* work) {
  return ddp_issue_on(group, DDP_GATHER, input, output, NULL, root, timeout_ms, work);
}
/** Distributes root's input: rank r's output becomes output.count elements of it, starting at r * output.count. input
 * is ignored on the other ranks. Count, type and root must be the same on every rank. Source:
 * torch.distributed.scatter, out of one buffer. */
static inline ddp_status ddp_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root,
                                     int64_t timeout_ms, ddp_work* work) {
  return ddp_issue_on(group, DDP_SCATTER, input, output, NULL, root, timeout_ms, work);
}
/** Reduces the inputs and gives each rank one part. input has size * output.count elements; rank r's output becomes the
 * reduction over all ranks of the elements starting at r * output.count. The input is not changed. Count, type and
 * reduction must be the same on every rank. Source: torch.distributed.reduce_scatter_tensor. */
static inline ddp_status ddp_reduce_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output,
                                            ddp_reduction reduction, int64_t timeout_ms, ddp_work* work) {
  return ddp_issue_on(group, DDP_REDUCE_SCATTER, input, output, &reduction, 0, timeout_ms, work);
}
/** Sends a part of each rank's input to every rank: rank r gets input_counts[r] elements and gives output_counts[r],
 * stored one rank after the other. The count arrays have an entry for each rank, add up to the buffers' counts, and are
 * copied; NULL means equal parts. What one rank sends and the other expects must agree. Buffers must not overlap.
 * Source: torch.distributed.all_to_all_single. */
static inline ddp_status ddp_all_to_all(ddp_group* group, ddp_buffer input, const size_t* input_counts,
                                        ddp_buffer output, const size_t* output_counts, int64_t timeout_ms,
                                        ddp_work* work) {
  ddp_operation operation = ddp_operation_of(DDP_ALL_TO_ALL, 0, timeout_ms);
  operation.input = input;
  operation.output = output;
  operation.input_counts = input_counts;
  operation.output_counts = output_counts;
  return ddp_issue(group, &operation, work);
}
/** Gives this rank zeroed memory of at least `bytes` bytes for buffers of the group, in *memory. Every rank calls it,
 * with the same size. With the backend "ddp" it is shared memory. If all ranks pass the same part of it as the buffer
 * of ddp_all_reduce(), ddp_reduce() or ddp_broadcast(), as the input of ddp_reduce_scatter() or as the output of
 * ddp_all_gather(), they use each other's in place, which takes less time. Any other use is right, too. Other backends
 * give plain memory. A child that the process forks shares the memory. Free it with ddp_free(); what is left is freed
 * with the group. Source: none in torch.distributed. */
DDP_API ddp_status ddp_allocate(ddp_group* group, size_t bytes, int64_t timeout_ms, void** memory);
/** Frees memory of ddp_allocate(), which no operation may use any more. NULL is ignored. Ranks need not call it
 * together. */
DDP_API void ddp_free(ddp_group* group, void* memory);
/** Waits until every rank has called it. Source: torch.distributed.barrier. */
static inline ddp_status ddp_barrier(ddp_group* group, int64_t timeout_ms, ddp_work* work) {
  const ddp_operation operation = ddp_operation_of(DDP_BARRIER, 0, timeout_ms);
  return ddp_issue(group, &operation, work);
}
/** Waits until every rank has called it, and names the missing ranks if some do not. It meets in the job's store, not
 * over the group's connections, and is slower than ddp_barrier(): use it to find out which rank is stuck. If some ranks
 * are missing when the first to come has waited for timeout_ms, all that wait and all that still come get DDP_TIMEOUT,
 * whose text names one missing rank, or all of them with wait_all_ranks = 1. It takes its turn among the group's
 * operations, and its failure ends the group. Source: torch.distributed.monitored_barrier, where only rank 0 learns
 * which rank is missing. */
static inline ddp_status ddp_monitored_barrier(ddp_group* group, int32_t wait_all_ranks, int64_t timeout_ms) {
  ddp_operation operation = ddp_operation_of(DDP_MONITORED_BARRIER, 0, timeout_ms);
  operation.wait_all_ranks = wait_all_ranks;
  return ddp_issue(group, &operation, NULL);
}

/**
 * @name Messages between two ranks
 * Messages start at once and wait only for each other, not for other operations of their group. Messages between two
 * ranks with the same tag arrive in the order in which they were sent; count and type of both sides must agree. A group
 * may have any number of messages in flight, and several threads may wait for them. Wait for each that has a work:
 * until then the library remembers it. Source: torch.distributed's send, recv, isend and irecv.
 * @{
 */

/** Source for ddp_recv() that takes the message of whichever rank sends first. */
#define DDP_ANY_RANK (-1)

/** Sends the buffer to another rank. It has ended once the buffer may be used again; the receiver may not have it yet.
 */
static inline ddp_status ddp_send(ddp_group* group, ddp_buffer buffer, int32_t destination, uint32_t tag,
                                  int64_t timeout_ms, ddp_work* work) {
  ddp_operation operation = ddp_operation_of(DDP_SEND, destination, timeout_ms);
  operation.input = buffer;
  operation.tag = tag;
  return ddp_issue(group, &operation, work);
}
/** Receives into the buffer what source, a rank or DDP_ANY_RANK, has sent. Without a work, *sender becomes the rank it
 * came from; sender may be NULL. With one, ddp_work_wait_source() gives the rank. */
static inline ddp_status ddp_recv(ddp_group* group, ddp_buffer buffer, int32_t source, uint32_t tag, int64_t timeout_ms,
                                  int32_t* sender, ddp_work* work) {
  ddp_operation operation = ddp_operation_of(DDP_RECV, source, timeout_ms);
  operation.output = buffer;
  operation.tag = tag;
  operation.sender = sender;
  return ddp_issue(group, &operation, work);
}

/** @} */

/** Waits until the operation has ended. Returns its own failure, or DDP_ABORTED if an earlier operation of the group
 * failed. Its deadline was set when it was issued. May be called any number of times, from any thread. Source:
 * Work.wait of PyTorch. */
DDP_API ddp_status ddp_work_wait(ddp_work work);
/** Waits as ddp_work_wait() does, and gives the rank at the other end of a message. *source becomes -1 for a
 * collective, and if a message has been waited for before. */
DDP_API ddp_status ddp_work_wait_source(ddp_work work, int32_t* source);
/** Waits for at most timeout_ms; 0 only checks. *completed becomes 1 if the operation has ended, else 0. If it has
 * failed, its failure is this call's status; an operation that has not ended yet is not a failure. Source:
 * Work.is_completed of PyTorch. */
DDP_API ddp_status ddp_work_wait_for(ddp_work work, int64_t timeout_ms, int32_t* completed);
/** Waits as ddp_work_wait() does, on the host even for operations on the memory of a GPU. Afterwards the result may be
 * read anywhere. */
DDP_API ddp_status ddp_work_synchronize(ddp_work work);
/** Returns once the operation does not use its buffers any more, for a caller that does not want its result. It waits
 * as ddp_work_synchronize() does, except for a receive by the backend "ddp", which nobody may ever answer: its message
 * is thrown away when it comes, and its deadline stays. A failure has ended the group, so that the group's next
 * operation reports it. Returns at once if the group's session has ended, and in a child that the process has forked.
 * Source: none in torch.distributed, where a Work owns its tensors. */
DDP_API void ddp_work_drop(ddp_work work);

/** @name Collectives on objects
 * An object is bytes, as many as each rank likes: text, a serialised value. Each call is one operation of the group,
 * with a sequence number and a deadline like the others; it exchanges the sizes first, then the bytes, without padding.
 * Objects are delivered before the call returns, in the order of ranks. A rank needs memory for what it receives, and
 * the root of ddp_scatter_object() also for a copy of all. For gradients and the like use the collectives on buffers,
 * which copy nothing.
 * @{ */
/** Issues a collective on objects, of which this rank gives `count`. */
static inline ddp_status ddp_issue_objects(ddp_group* group, int32_t kind, const ddp_bytes* objects, size_t count,
                                           int32_t root, int64_t timeout_ms, ddp_sink sink) {
  ddp_operation operation = ddp_operation_of(kind, root, timeout_ms);
  operation.objects = objects;
  operation.object_count = count;
  operation.sink = sink;
  return ddp_issue(group, &operation, NULL);
}
/** Delivers root's object on every rank; the other ranks' objects are ignored. Source:
 * torch.distributed.broadcast_object_list. */
static inline ddp_status ddp_broadcast_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms,
                                              ddp_sink sink) {
  return ddp_issue_objects(group, DDP_BROADCAST_OBJECT, &object, 1, root, timeout_ms, sink);
}
/** Delivers every rank's object on every rank, one delivery for each rank. Source: torch.distributed.all_gather_object.
 */
static inline ddp_status ddp_all_gather_object(ddp_group* group, ddp_bytes object, int64_t timeout_ms, ddp_sink sink) {
  return ddp_issue_objects(group, DDP_ALL_GATHER_OBJECT, &object, 1, 0, timeout_ms, sink);
}
/** Delivers every rank's object on root. Nothing is delivered on the other ranks, whose sink is ignored. Source:
 * torch.distributed.gather_object. */
static inline ddp_status ddp_gather_object(ddp_group* group, ddp_bytes object, int32_t root, int64_t timeout_ms,
                                           ddp_sink sink) {
  return ddp_issue_objects(group, DDP_GATHER_OBJECT, &object, 1, root, timeout_ms, sink);
}
/** Delivers objects[r] of root on rank r. count is the number of root's objects, the group's size; the other ranks'
 * objects are ignored. Source: torch.distributed.scatter_object_list. */
static inline ddp_status ddp_scatter_object(ddp_group* group, const ddp_bytes* objects, size_t count, int32_t root,
                                            int64_t timeout_ms, ddp_sink sink) {
  return ddp_issue_objects(group, DDP_SCATTER_OBJECT, objects, count, root, timeout_ms, sink);
}
/** @} */

/* NOLINTEND(modernize-use-nullptr) */

/** @} */

#ifdef __cplusplus
}
#endif
#endif
