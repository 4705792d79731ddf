// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on gradients and weights.
#include <span>

#include "ddp/ddp.h"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/options.hpp"
#include "runtime/training/optim/adamw.hpp"
#include "runtime/training/optim/gradient_math.hpp"
#include "runtime/training/optim/sgd.hpp"

namespace {

using ddp::runtime::guard;
using ddp::runtime::not_null;

}  // namespace

ddp_status ddp_buffer_convert(ddp_buffer from, ddp_buffer to) {
  return guard([&] { ddp::runtime::convert(from, to); });
}

ddp_status ddp_buffer_multiply(ddp_buffer from, ddp_buffer to, double factor, int32_t* found_inf) {
  return guard([&] {
    const bool finite = ddp::runtime::multiply(from, to, factor);
    if (found_inf != nullptr && !finite) *found_inf = 1;
  });
}

ddp_status ddp_buffer_power_sum(ddp_buffer buffer, double norm_type, double* sum) {
  return guard([&] { not_null(sum, "the sum to fill in") = ddp::runtime::power_sum(buffer, norm_type); });
}

ddp_status ddp_power_sums_combine(const double* sums, size_t count, double norm_type, double* sum) {
  return guard([&] {
    if (count > 0) not_null(sums, "the sums");
    not_null(sum, "the sum to fill in") = ddp::runtime::combined(std::span(sums, count), norm_type);
  });
}

ddp_status ddp_power_sum_root(double sum, double norm_type, double* norm) {
  return guard([&] { not_null(norm, "the norm to fill in") = ddp::runtime::root_of(sum, norm_type); });
}

ddp_status ddp_buffers_clip(const ddp_buffer* buffers, size_t count, double max_norm, double total_norm,
                            int32_t error_if_nonfinite) {
  return guard([&] {
    if (count > 0) not_null(buffers, "the buffers");
    ddp::runtime::clip(std::span(buffers, count), max_norm, total_norm, error_if_nonfinite != 0);
  });
}

ddp_status ddp_loss_scale_update(float scale, double factor, float min_scale, float max_scale, float* updated) {
  return guard([&] {
    not_null(updated, "the scale to fill in") = ddp::runtime::updated_scale(scale, factor, min_scale, max_scale);
  });
}

ddp_status ddp_adamw_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays) {
  return guard([&] {
    ddp::runtime::adamw_step(DDP_OPTIONS(ddp_adamw_options, step, &not_null(options, "the step's options")),
                             not_null(arrays, "the step's arrays"));
  });
}

ddp_status ddp_adam_step(const ddp_adamw_options* options, const ddp_adamw_arrays* arrays) {
  return guard([&] {
    ddp::runtime::adam_step(DDP_OPTIONS(ddp_adamw_options, step, &not_null(options, "the step's options")),
                            not_null(arrays, "the step's arrays"));
  });
}

ddp_status ddp_sgd_step(const ddp_sgd_options* options, const ddp_sgd_arrays* arrays) {
  return guard([&] {
    ddp::runtime::sgd_step(DDP_OPTIONS(ddp_sgd_options, step, &not_null(options, "the step's options")),
                           not_null(arrays, "the step's arrays"));
  });
}
