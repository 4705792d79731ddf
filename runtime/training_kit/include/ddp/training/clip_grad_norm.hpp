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

#include <limits>
#include <vector>

#include "ddp/c/training.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

/// Norm type that gives the largest absolute value.
inline constexpr double kInfinityNorm = std::numeric_limits<double>::infinity();

namespace detail {
// What a compiler may leave out in a program that is built with -ffast-math, such as looking for NaN, is in libddp.

inline double combine_powers(const std::vector<double>& sums, double norm_type) {
  double powers = 0;
  check(ddp_power_sums_combine(sums.data(), sums.size(), norm_type, &powers));
  return powers;
}

inline double root_of_powers(double powers, double norm_type) {
  double norm = 0;
  check(ddp_power_sum_root(powers, norm_type, &norm));
  return norm;
}

inline std::vector<ddp_buffer> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<ddp_buffer> gradients;
  for (const Parameter& p : parameters) {
    if (p.grad != nullptr) gradients.push_back(gradient_of(p).c());
  }
  return gradients;
}

inline double gradient_powers(const std::vector<Parameter>& parameters, double norm_type) {
  std::vector<double> sums;
  for (const ddp_buffer& gradient : gradients_of(parameters)) {
    check(ddp_buffer_power_sum(gradient, norm_type, &sums.emplace_back()));
  }
  return combine_powers(sums, norm_type);
}

inline void clip(const std::vector<Parameter>& parameters, double max_norm, double total_norm,
                 bool error_if_nonfinite) {
  const std::vector<ddp_buffer> gradients = gradients_of(parameters);
  check(ddp_buffers_clip(gradients.data(), gradients.size(), max_norm, total_norm, error_if_nonfinite ? 1 : 0));
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
  return detail::root_of_powers(detail::combine_powers(all, norm_type), norm_type);
}

/// Multiplies all gradients by max_norm / (total_norm + 1e-6) if that is below 1. An infinite norm
/// makes them 0, a norm that is not a number makes all of them NaN. Source:
/// torch.nn.utils.clip_grads_with_norm_.
inline void clip_grads_with_norm(const std::vector<Parameter>& parameters, double max_norm, double total_norm) {
  detail::clip(parameters, max_norm, total_norm, false);
}

/// Scales all gradients so that their norm is at most max_norm, and returns the norm from before.
/// Gradients that are not numbers show in the norm; with error_if_nonfinite they throw Error with
/// Status::InvalidArgument before any is changed. Source: torch.nn.utils.clip_grad_norm_.
inline double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm, double norm_type = 2,
                             bool error_if_nonfinite = false) {
  const double norm = get_total_norm(parameters, norm_type);
  detail::clip(parameters, max_norm, norm, error_if_nonfinite);
  return norm;
}

/// Scales gradients of which each rank of the group has a share so that the norm of all is at most
/// max_norm; a rank may have none. Collective.
inline double clip_grad_norm(const ProcessGroup& group, const std::vector<Parameter>& share, double max_norm,
                             double norm_type = 2, bool error_if_nonfinite = false) {
  const double norm = get_total_norm(group, share, norm_type);
  detail::clip(share, max_norm, norm, error_if_nonfinite);
  return norm;
}

}  // namespace ddp
