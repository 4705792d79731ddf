/* SPDX-License-Identifier: BSD-3-Clause
 * A backend whose operations do nothing and return at once, so that only libddp's own part of a call is left. Results
 * are meaningless. */
#include <stddef.h>

#include "ddp/backend.h"

static ddp_backend_status group_create(const ddp_backend_group_config* config, ddp_backend_group** out,
                                       ddp_backend_error* error) {
  static char any;
  (void)config, (void)error;
  *out = (ddp_backend_group*)&any;
  return DDP_BACKEND_OK;
}
static void group_destroy(ddp_backend_group* group) { (void)group; }
static void group_abort(ddp_backend_group* group) { (void)group; }

static ddp_backend_status all_reduce(ddp_backend_group* g, void* data, size_t n, ddp_backend_dtype t,
                                     ddp_backend_reduce_op op, uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)g, (void)data, (void)n, (void)t, (void)op, (void)tag, (void)ms, (void)e;
  return DDP_BACKEND_OK;
}
static ddp_backend_status reduce(ddp_backend_group* g, void* data, size_t n, ddp_backend_dtype t,
                                 ddp_backend_reduce_op op, int32_t root, uint32_t tag, int64_t ms,
                                 ddp_backend_error* e) {
  (void)g, (void)data, (void)n, (void)t, (void)op, (void)root, (void)tag, (void)ms, (void)e;
  return DDP_BACKEND_OK;
}
static ddp_backend_status broadcast(ddp_backend_group* g, void* data, size_t n, ddp_backend_dtype t, int32_t root,
                                    uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)g, (void)data, (void)n, (void)t, (void)root, (void)tag, (void)ms, (void)e;
  return DDP_BACKEND_OK;
}
static ddp_backend_status all_gather(ddp_backend_group* g, const void* in, void* out, size_t n, ddp_backend_dtype t,
                                     uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)g, (void)in, (void)out, (void)n, (void)t, (void)tag, (void)ms, (void)e;
  return DDP_BACKEND_OK;
}
static ddp_backend_status with_root(ddp_backend_group* g, const void* in, void* out, size_t n, ddp_backend_dtype t,
                                    int32_t root, uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)root;
  return all_gather(g, in, out, n, t, tag, ms, e);
}
static ddp_backend_status reduce_scatter(ddp_backend_group* g, const void* in, void* out, size_t n, ddp_backend_dtype t,
                                         ddp_backend_reduce_op op, uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)op;
  return all_gather(g, in, out, n, t, tag, ms, e);
}
static ddp_backend_status all_to_all(ddp_backend_group* g, const void* in, const size_t* in_counts, void* out,
                                     const size_t* out_counts, ddp_backend_dtype t, uint32_t tag, int64_t ms,
                                     ddp_backend_error* e) {
  (void)in_counts, (void)out_counts;
  return all_gather(g, in, out, 0, t, tag, ms, e);
}
static ddp_backend_status barrier(ddp_backend_group* g, uint32_t tag, int64_t ms, ddp_backend_error* e) {
  (void)g, (void)tag, (void)ms, (void)e;
  return DDP_BACKEND_OK;
}

static ddp_backend_status start_message(ddp_backend_message** out) {
  static char any;
  *out = (ddp_backend_message*)&any;
  return DDP_BACKEND_OK;
}
static ddp_backend_status send(ddp_backend_group* g, const void* data, size_t bytes, int32_t peer, uint64_t tag,
                               ddp_backend_message** out, ddp_backend_error* e) {
  (void)g, (void)data, (void)bytes, (void)peer, (void)tag, (void)e;
  return start_message(out);
}
static ddp_backend_status receive(ddp_backend_group* g, void* data, size_t bytes, int32_t peer, uint64_t tag,
                                  ddp_backend_message** out, ddp_backend_error* e) {
  (void)g, (void)data, (void)bytes, (void)peer, (void)tag, (void)e;
  return start_message(out);
}
static ddp_backend_status message_wait(ddp_backend_group* g, ddp_backend_message* message, int64_t ms, int32_t* peer,
                                       ddp_backend_error* e) {
  (void)g, (void)message, (void)ms, (void)e;
  *peer = 0;
  return DDP_BACKEND_OK;
}
static void message_free(ddp_backend_message* message) { (void)message; }

static const ddp_backend_table table = {
    .abi_version = DDP_BACKEND_ABI_VERSION,
    .struct_size = sizeof(ddp_backend_table),
    .name = "null",
    .group_create = &group_create,
    .group_destroy = &group_destroy,
    .group_abort = &group_abort,
    .all_reduce = &all_reduce,
    .reduce = &reduce,
    .broadcast = &broadcast,
    .all_gather = &all_gather,
    .gather = &with_root,
    .scatter = &with_root,
    .reduce_scatter = &reduce_scatter,
    .all_to_all = &all_to_all,
    .barrier = &barrier,
    .send = &send,
    .receive = &receive,
    .message_wait = &message_wait,
    .message_free = &message_free,
};

__attribute__((visibility("default"))) const ddp_backend_table* ddp_backend_open(uint32_t abi_version) {
  return abi_version == DDP_BACKEND_ABI_VERSION ? &table : NULL;
}
