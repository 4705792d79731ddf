// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on batch normalisation.
#include <memory>

#include "ddp/ddp.h"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/api/options.hpp"
#include "runtime/training/batch_norm/sync_batch_norm.hpp"

namespace {

using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::SyncBatchNorm;

SyncBatchNorm* of(ddp_sync_batch_norm* handle) { return reinterpret_cast<SyncBatchNorm*>(handle); }

}  // namespace

ddp_status ddp_sync_batch_norm_create(ddp_group* group, size_t channels, const ddp_sync_batch_norm_tensors* tensors,
                                      const ddp_sync_batch_norm_options* options, ddp_sync_batch_norm** out) {
  return guard([&] {
    not_null(out, "the batch norm to fill in");
    *out = nullptr;
    auto norm = std::make_unique<SyncBatchNorm>(ddp::runtime::group_of(group), channels,
                                                tensors != nullptr ? *tensors : ddp_sync_batch_norm_tensors{},
                                                DDP_OPTIONS(ddp_sync_batch_norm_options, momentum, options));
    *out = reinterpret_cast<ddp_sync_batch_norm*>(norm.release());
  });
}

void ddp_sync_batch_norm_destroy(ddp_sync_batch_norm* norm) {
  guard([&] { delete of(norm); });
}

ddp_status ddp_sync_batch_norm_set_tensors(ddp_sync_batch_norm* norm, const ddp_sync_batch_norm_tensors* tensors) {
  return guard([&] {
    not_null(of(norm), "the batch norm").set_tensors(tensors != nullptr ? *tensors : ddp_sync_batch_norm_tensors{});
  });
}

ddp_status ddp_sync_batch_norm_set_training(ddp_sync_batch_norm* norm, int32_t training) {
  return guard([&] { not_null(of(norm), "the batch norm").set_training(training != 0); });
}

ddp_status ddp_sync_batch_norm_forward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer output, size_t length) {
  return guard([&] { not_null(of(norm), "the batch norm").forward(input, output, length); });
}

ddp_status ddp_sync_batch_norm_backward(ddp_sync_batch_norm* norm, ddp_buffer input, ddp_buffer grad_output,
                                        ddp_buffer grad_input) {
  return guard([&] { not_null(of(norm), "the batch norm").backward(input, grad_output, grad_input); });
}
