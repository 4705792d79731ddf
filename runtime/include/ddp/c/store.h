/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Stores: keys and values that ranks share.
 */
#ifndef DDP_C_STORE_H
#define DDP_C_STORE_H

#include "ddp/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup store Stores: keys and values that ranks share
 *
 * These are the stores of torch.distributed, with its protocol and file format, so that ranks in Python can share them.
 * A function behaves as the method of its name in torch.distributed.Store unless its description says otherwise.
 *
 * Every call ends. timeout_ms is how long to wait; 0 means the store's timeout, which calls without a timeout_ms have
 * too. A deadline that passes is DDP_TIMEOUT, whose text names the store, the key and the time waited, and the store
 * remains usable. Any thread may call.
 *
 * @{
 */

/** A store of keys and values. Made by one of the ddp_store_create functions, or owned by a session. */
typedef struct ddp_store ddp_store;

/** Connects to a torch.distributed.TCPStore: one of ddprun, torchrun, or any PyTorch program since 2.2. Retries
 * with growing pauses until timeout_ms have passed; that is also the store's timeout, and 0 means 5 minutes. count_in =
 * 1 makes this process one of the workers that a dist.TCPStore(world_size=...) waits for.
 *
 * Limits: keys of 8191 bytes, values of 8 MiB, 131072 keys in a call; beyond that DDP_INVALID_ARGUMENT. A lost
 * connection is DDP_SYSTEM, for that call and all later ones. Calls are served one after the other: give each thread
 * that waits a store of its own. */
DDP_API ddp_status ddp_store_create_tcp(const char* host, int32_t port, int64_t timeout_ms, int32_t count_in,
                                        ddp_store** out);
/** Opens a store in a file that all ranks can open, in the format of torch.distributed.FileStore. Creates the file if
 * it is missing; its folder must exist. The last of world_size processes to destroy its store removes the file. With a
 * negative world_size nothing removes it, nor if a process was killed: use a new file for each run. It has no queues.
 * DDP_CORRUPT if the file holds something else. */
DDP_API ddp_status ddp_store_create_file(const char* path, int64_t world_size, int64_t timeout_ms, ddp_store** out);
/** Makes a view of another store that puts prefix and "/" before every key. base must outlive it, and has its timeout.
 * Source: torch.distributed.PrefixStore. */
DDP_API ddp_status ddp_store_create_prefix(const char* prefix, ddp_store* base, ddp_store** out);
/** Ends a store that one of the functions above has made. NULL is allowed. */
DDP_API void ddp_store_destroy(ddp_store* store);
/** Sets the store's timeout, for connecting again and for every call without a timeout of its own. On a prefix store it
 * sets the timeout of the store under it. */
DDP_API ddp_status ddp_store_set_timeout(ddp_store* store, int64_t timeout_ms);

/** Sets a key to a value, whatever it had before. */
DDP_API ddp_status ddp_store_set(ddp_store* store, const char* key, ddp_bytes value);
/** Delivers a key's value; waits until the key exists. */
DDP_API ddp_status ddp_store_get(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/** Adds delta to the decimal number that is a key's value; *sum becomes the result. A missing key counts as 0. If the
 * value is not a number: DDP_INVALID_ARGUMENT, but a TCP store loses its connection (DDP_SYSTEM), as PyTorch's does. */
DDP_API ddp_status ddp_store_add(ddp_store* store, const char* key, int64_t delta, int64_t* sum);
/** Checks, without waiting, whether all keys exist: *all becomes 1 or 0. A queue that is not empty counts as its key.
 */
DDP_API ddp_status ddp_store_check(ddp_store* store, const char* const* keys, size_t count, int32_t* all);
/** Waits until all keys exist, as ddp_store_check() counts. */
DDP_API ddp_status ddp_store_wait(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms);
/** Sets a key to `desired` if its value is `expected`; a missing key counts as one with an empty value. Delivers the
 * value after that; if the key is missing and expected is not empty, it delivers expected, as PyTorch does. */
DDP_API ddp_status ddp_store_compare_set(ddp_store* store, const char* key, ddp_bytes expected, ddp_bytes desired,
                                         ddp_sink sink);
/** Appends a value to a key's value; a missing key is created. */
DDP_API ddp_status ddp_store_append(ddp_store* store, const char* key, ddp_bytes value);
/** Removes a key; *deleted becomes 1 if it existed, else 0. Queues cannot be deleted. */
DDP_API ddp_status ddp_store_delete_key(ddp_store* store, const char* key, int32_t* deleted);
/** Counts the keys of the whole store, whatever the prefix, including the store's own counters. */
DDP_API ddp_status ddp_store_num_keys(ddp_store* store, int64_t* count);
/** Delivers every key, in no particular order; on a prefix store those that have the prefix, without it. */
DDP_API ddp_status ddp_store_list_keys(ddp_store* store, ddp_sink sink);
/** Delivers the values of several keys, in the order of the keys; waits until all exist. */
DDP_API ddp_status ddp_store_multi_get(ddp_store* store, const char* const* keys, size_t count, int64_t timeout_ms,
                                       ddp_sink sink);
/** Sets several keys at once: `count` keys to as many values. */
DDP_API ddp_status ddp_store_multi_set(ddp_store* store, const char* const* keys, const ddp_bytes* values,
                                       size_t count);

/** Appends an element to a queue. Queues are first in, first out; their names are separate from keys.
 * DDP_INVALID_ARGUMENT on a file store; with a PyTorch server before 2.8 or with use_libuv=False it is DDP_SYSTEM, and
 * the connection is lost. */
DDP_API ddp_status ddp_store_queue_push(ddp_store* store, const char* key, ddp_bytes value);
/** Removes and delivers the oldest element of a queue; waits until there is one. */
DDP_API ddp_status ddp_store_queue_pop(ddp_store* store, const char* key, int64_t timeout_ms, ddp_sink sink);
/** Removes and delivers the oldest element of a queue, if there is one: *popped becomes 1 or 0. */
DDP_API ddp_status ddp_store_queue_try_pop(ddp_store* store, const char* key, int32_t* popped, ddp_sink sink);
/** Counts the elements of a queue; 0 if there is no queue of that name. */
DDP_API ddp_status ddp_store_queue_len(ddp_store* store, const char* key, int64_t* length);

/** Waits until world_size (at least 1) calls with this key were made. A key is for one use: afterwards it stays open,
 * and a call that timed out still counts. */
DDP_API ddp_status ddp_store_barrier(ddp_store* store, const char* key, int64_t world_size, int64_t timeout_ms);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
