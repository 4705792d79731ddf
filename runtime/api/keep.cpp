// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on kept memory.
#include <cstddef>
#include <memory>

#include "ddp/ddp.h"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/c_handles.hpp"
#include "runtime/recovery/kept_memory.hpp"
#include "runtime/recovery/kept_offer.hpp"

namespace {

using ddp::runtime::guard;
using ddp::runtime::KeptMemory;
using ddp::runtime::not_null;
using ddp::runtime::of;

KeptMemory& kept_of(ddp_kept* kept) { return not_null(reinterpret_cast<KeptMemory*>(kept), "the kept memory"); }

}  // namespace

ddp_status ddp_keep(ddp_session* session, const char* name, size_t bytes, const ddp_keep_options* options,
                    ddp_kept** kept, void** memory, int32_t* found) {
  return guard([&] {
    not_null(kept, "the kept memory to fill in") = nullptr;
    not_null(memory, "the pointer to fill in") = nullptr;
    not_null(found, "the number to fill in") = 0;
    const ddp_keep_options given = DDP_OPTIONS(ddp_keep_options, layout, options);
    KeptMemory::Options keep = {.name = &not_null(name, "the name of memory to keep"),
                                .bytes = bytes,
                                .layout = given.layout,
                                .own_bytes = given.own_bytes,
                                .own_layout = given.own_layout,
                                .record = {}};
    if (given.record_count > 0) {
      const ddp_buffer* const first = &not_null(given.record, "the record to keep");
      keep.record.assign(first, first + given.record_count);
    }
    auto made = std::make_unique<KeptMemory>(not_null(of(session), "the session").world(), std::move(keep));
    *memory = made->memory();
    *found = made->is_filled() ? 2 : made->found() ? 1 : 0;
    *kept = reinterpret_cast<ddp_kept*>(made.release());
  });
}

ddp_status ddp_kept_peek(const char* name, void* buffer, size_t bytes, size_t* read) {
  return guard([&] {
    not_null(read, "the number to fill in") = 0;
    std::byte& to = not_null(static_cast<std::byte*>(buffer), "the buffer to fill in");
    *read = ddp::runtime::read_kept_memory(&not_null(name, "the name of kept memory"), &to, bytes);
  });
}

void ddp_kept_destroy(ddp_kept* kept) { delete reinterpret_cast<KeptMemory*>(kept); }

ddp_status ddp_kept_begun(ddp_kept* kept, int32_t* write) {
  return guard([&] { not_null(write, "the number to fill in") = kept_of(kept).begun() ? 1 : 0; });
}

ddp_status ddp_kept_updated(ddp_kept* kept) {
  return guard([&] { kept_of(kept).updated(); });
}

ddp_status ddp_kept_done(ddp_kept* kept, int64_t* steps) {
  return guard([&] {
    not_null(steps, "the number to fill in");
    kept_of(kept).done();
    *steps = kept_of(kept).step();
  });
}

const char* ddp_kept_recovered(const ddp_kept* kept) {
  return kept != nullptr ? reinterpret_cast<const KeptMemory*>(kept)->recovered().c_str() : "";
}
