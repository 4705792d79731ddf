// SPDX-License-Identifier: BSD-3-Clause
// libddp's exported functions on checkpoints.
#include <memory>
#include <string>

#include "ddp/ddp.h"
#include "runtime/src/c_guard.hpp"
#include "runtime/training/safetensors.hpp"

namespace {

using ddp::runtime::Checkpoint;
using ddp::runtime::guard;
using ddp::runtime::not_null;

Checkpoint* of(ddp_checkpoint* handle) { return reinterpret_cast<Checkpoint*>(handle); }
const Checkpoint* of(const ddp_checkpoint* handle) { return reinterpret_cast<const Checkpoint*>(handle); }

}  // namespace

ddp_status ddp_checkpoint_save(const char* path, const ddp_tensor* tensors, size_t tensor_count,
                               const ddp_metadata_entry* metadata, size_t metadata_count) {
  return guard([&] {
    ddp::runtime::save_checkpoint(&not_null(path, "the checkpoint's path"), {tensors, tensor_count},
                                  {metadata, metadata_count});
  });
}

ddp_status ddp_checkpoint_open(const char* path, ddp_checkpoint** out) {
  return guard([&] {
    not_null(out, "the checkpoint to fill in");
    *out = nullptr;
    auto checkpoint = std::make_unique<Checkpoint>(&not_null(path, "the checkpoint's path"));
    *out = reinterpret_cast<ddp_checkpoint*>(checkpoint.release());
  });
}

void ddp_checkpoint_close(ddp_checkpoint* checkpoint) { delete of(checkpoint); }

const char* ddp_checkpoint_metadata(const ddp_checkpoint* checkpoint, const char* key) {
  const char* value = nullptr;
  guard([&] {
    const std::string* found = not_null(of(checkpoint), "the checkpoint").metadata(&not_null(key, "the key"));
    value = found != nullptr ? found->c_str() : nullptr;
  });
  return value;
}

ddp_status ddp_checkpoint_read(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                               const int64_t* shape, size_t rank) {
  return guard([&] {
    if (rank > 0) not_null(shape, "the shape");
    not_null(of(checkpoint), "the checkpoint").read(&not_null(name, "the tensor's name"), buffer, {shape, rank});
  });
}
