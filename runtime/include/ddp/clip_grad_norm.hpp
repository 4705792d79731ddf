// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clipping: the norm of gradients, and functions that keep it below a limit. Sums are computed in
/// 64 bits and in an order that depends only on an element's place, so every rank gets the same
/// bits.
///
/// After averaging every rank has the same gradients: leave out the group, and nothing is sent.
/// Where each rank has only a share of them, give the group over which they are spread: the norm is
/// taken over all shares together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

/// Norm type that gives the largest absolute value.
inline constexpr double kInfinityNorm = std::numeric_limits<double>::infinity();

namespace detail {
/// Combines the sums of two parts of the gradients. NaN stays NaN.
inline double combine_powers(double a, double b, double norm_type) {
  if (!std::isinf(norm_type)) return a + b;
  return std::isnan(a) ? a : (b <= a ? a : b);
}

inline double root_of_powers(double powers, double norm_type) {
  if (norm_type == 1 || std::isinf(norm_type)) return powers;
  return norm_type == 2 ? std::sqrt(powers) : std::pow(powers, 1 / norm_type);
}

inline double gradient_powers(const std::vector<Parameter>& parameters, double norm_type) {
  double powers = 0;
  for (const Parameter& p : parameters) {
    if (p.grad == nullptr) continue;
    double sum = 0;
    check(ddp_buffer_power_sum(gradient_of(p).c(), norm_type, &sum));
    powers = combine_powers(powers, sum, norm_type);
  }
  return powers;
}

inline double finite_norm(double norm, bool error_if_nonfinite) {
  if (!error_if_nonfinite || std::isfinite(norm)) return norm;
  throw Error(Status::InvalidArgument, "clip_grad_norm: the gradients' norm is " + std::to_string(norm) +
                                           ": they cannot be clipped; lower the learning rate, or leave this step out");
}
}  // namespace detail

/// Returns the norm of all gradients as one vector. norm_type is 2, 1, kInfinityNorm, or any other
/// number above 0. Parameters without a gradient (null) are left out. Source:
/// torch.nn.utils.get_total_norm.
inline double get_total_norm(const std::vector<Parameter>& parameters, double norm_type = 2) {
  return detail::root_of_powers(detail::gradient_powers(parameters, norm_type), norm_type);
}

/// Returns the norm of gradients of which each rank of the group has a share; a rank may have none.
/// Collective.
inline double get_total_norm(const ProcessGroup& group, const std::vector<Parameter>& share, double norm_type = 2) {
  std::vector<double> mine = {detail::gradient_powers(share, norm_type)};
  std::vector<double> all(static_cast<std::size_t>(group.size()));
  group.all_gather(mine, all);  // not a reduction: ReduceOp::Max of a NaN and a number might be the number
  double powers = 0;
  for (const double part : all) powers = detail::combine_powers(powers, part, norm_type);
  return detail::root_of_powers(powers, norm_type);
}

/// Multiplies all gradients by max_norm / (total_norm + 1e-6) if that is below 1. An infinite norm
/// makes them 0, a norm that is not a number makes all of them NaN. Source:
/// torch.nn.utils.clip_grads_with_norm_.
inline void clip_grads_with_norm(const std::vector<Parameter>& parameters, double max_norm, double total_norm) {
  const double factor = max_norm / (total_norm + 1e-6);
  if (factor >= 1) return;
  for (const Parameter& p : parameters) {
    if (p.grad == nullptr) continue;
    const ddp_buffer grad = detail::gradient_of(p).c();
    detail::check(ddp_buffer_multiply(grad, grad, factor, nullptr));
  }
}

/// Scales all gradients so that their norm is at most max_norm, and returns the norm from before.
/// Gradients that are not numbers show in the norm; with error_if_nonfinite they throw Error with
/// Status::InvalidArgument before any is changed. Source: torch.nn.utils.clip_grad_norm_.
inline double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm, double norm_type = 2,
                             bool error_if_nonfinite = false) {
  const double norm = detail::finite_norm(get_total_norm(parameters, norm_type), error_if_nonfinite);
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm;
}

/// Scales gradients of which each rank of the group has a share so that the norm of all is at most
/// max_norm; a rank may have none. Collective.
inline double clip_grad_norm(const ProcessGroup& group, const std::vector<Parameter>& share, double max_norm,
                             double norm_type = 2, bool error_if_nonfinite = false) {
  const double norm = detail::finite_norm(get_total_norm(group, share, norm_type), error_if_nonfinite);
  clip_grads_with_norm(share, max_norm, norm);
  return norm;
}

}  // namespace ddp
