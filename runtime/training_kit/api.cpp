// SPDX-License-Identifier: BSD-3-Clause
// The functions that libddp_training exports: no exception leaves them, and its text is kept for ddp_error_last().
#include <memory>
#include <span>

#include "ddp/c/training.h"
#include "ddp/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/training_kit/batch_norm/sync_batch_norm.hpp"
#include "runtime/training_kit/optim/adamw.hpp"
#include "runtime/training_kit/optim/gradient_math.hpp"
#include "runtime/training_kit/optim/sgd.hpp"

namespace {

using ddp::runtime::not_null;
using ddp::training::SyncBatchNorm;

template <typename Body>
ddp_status guard(Body&& body) noexcept {
  const auto status_of = [](const ddp::Error& e) { return static_cast<ddp_status>(e.status()); };
  return ddp::runtime::guard_from<ddp::Error>(status_of, body);
}

SyncBatchNorm* of(ddp_sync_batch_norm* handle) { return reinterpret_cast<SyncBatchNorm*>(handle); }

}  // namespace

ddp_status ddp_buffer_multiply(ddp_buffer from, ddp_buffer to, double factor, int32_t* found_inf) {
  return guard([&] {
    const bool finite = ddp::training::multiply(from, to, factor);
    if (found_inf != nullptr && !finite) *found_inf = 1;
  });
}

ddp_status ddp_buffer_power_sum(ddp_buffer buffer, double norm_type, double* sum) {
  return guard([&] { not_null(sum, "the sum to fill in") = ddp::training::power_sum(buffer, norm_type); });
}

ddp_status ddp_power_sums_combine(const double* sums, size_t count, double norm_type, double* sum) {
  return guard([&] {
    if (count > 0) not_null(sums, "the sums");
    not_null(sum, "the sum to fill in") = ddp::training::combined(std::span(sums, count), norm_type);
  });
}

ddp_status ddp_power_sum_root(double sum, double norm_type, double* norm) {
  return guard([&] { not_null(norm, "the norm to fill in") = ddp::training::root_of(sum, norm_type); });
}

ddp_status ddp_buffers_clip(const ddp_buffer* buffers, size_t count, double max_norm, double total_norm,
                            int32_t error_if_nonfinite) {
  return guard([&] {
    if (count > 0) not_null(buffers, "the buffers");
    ddp::training::clip(std::span(buffers, count), max_norm, total_norm, error_if_nonfinite != 0);
  });
}

ddp_status ddp_loss_scale_update(float scale, double factor, float min_scale, float max_scale, float* updated) {
  return guard([&] {
    not_null(updated, "the scale to fill in") = ddp::training::updated_scale(scale, factor, min_scale, max_scale);
  });
}

ddp_status ddp_adamw_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays) {
  return guard([&] {
    ddp::training::adamw_step(DDP_OPTIONS(ddp_adamw_options, step, &not_null(options, "the step's options")),
                              not_null(arrays, "the step's arrays"));
  });
}

ddp_status ddp_adam_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays) {
  return guard([&] {
    ddp::training::adam_step(DDP_OPTIONS(ddp_adamw_options, step, &not_null(options, "the step's options")),
                             not_null(arrays, "the step's arrays"));
  });
}

ddp_status ddp_sgd_step(const ddp_sgd_options* options, const ddp_sgd_arrays* arrays) {
  return guard([&] {
    ddp::training::sgd_step(DDP_OPTIONS(ddp_sgd_options, step, &not_null(options, "the step's options")),
                            not_null(arrays, "the step's arrays"));
  });
}

ddp_status ddp_sync_batch_norm_create(ddp_group* group, size_t channels, const ddp_sync_batch_norm_tensors* tensors,
                                      const ddp_sync_batch_norm_options* options, ddp_sync_batch_norm** out) {
  return guard([&] {
    not_null(out, "the batch norm to fill in");
    *out = nullptr;
    // Refuses a group that is null, or that this process does not have any more.
    if (ddp_group_global_rank(group, 0) < 0) throw ddp::Error(ddp::Status::InvalidArgument, ddp_error_last());
    auto norm = std::make_unique<SyncBatchNorm>(ddp::ProcessGroup(group), channels,
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
