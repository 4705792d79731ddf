/* SPDX-License-Identifier: BSD-3-Clause
 * ddp.h is C99: this file only has to compile, with every warning an error. */
#include "ddp/ddp.h"

#if !defined(__STDC_VERSION__) || __STDC_VERSION__ != 199901L
#error "compile this as C99"
#endif

int takes_a_step(ddp_reducer* model);
ddp_status publishes(ddp_store* store, const char* address, size_t size);
ddp_status joins(const char* backend, ddp_session** session);

int takes_a_step(ddp_reducer* model) {
  return ddp_reducer_mark_ready(model, 0) == DDP_OK && ddp_reducer_synchronize(model) == DDP_OK;
}

ddp_status publishes(ddp_store* store, const char* address, size_t size) {
  const ddp_bytes value = {address, size};
  return ddp_store_set(store, "address", value);
}

ddp_status joins(const char* backend, ddp_session** session) {
  const ddp_session_options zeros = {0};
  ddp_session_options options = DDP_SESSION_OPTIONS_INIT;
  options.backend = backend;
  return ddp_session_init(backend != NULL ? &options : &zeros, session);
}
