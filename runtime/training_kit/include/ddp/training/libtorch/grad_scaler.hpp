// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GradScaler for optimizers of libtorch: dynamic loss scaling, for gradients of 16 bits.
///
///     ddp::libtorch::GradScaler scaler;
///     for (...) {
///       optimizer.zero_grad();
///       scaler.scale(loss(model(input), target)).backward();
///       scaler.unscale_(optimizer);                                           // to clip; else step() does it
///       torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
///       scaler.step(optimizer);                                               // unless a gradient has overflowed
///       scaler.update();
///     }
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/libtorch/collectives.hpp"
#include "ddp/process_group.hpp"
#include "ddp/training/grad_scaler.hpp"

namespace ddp::libtorch {

namespace detail {

// Divides gradients on one device, which is multiplying them by the inverse of the scale. Returns a number on that
// device: not 0 if one was infinite or not a number before.
inline at::Tensor unscale_on_device(const std::vector<at::Tensor>& gradients, double inverse) {
  at::Tensor found_inf = at::zeros({1}, gradients.front().options().dtype(at::kFloat).requires_grad(false));
  if (found_inf.is_cuda()) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, at::full_like(found_inf, inverse));
    return found_inf;
  }
  for (const at::Tensor& gradient : gradients) {  // libtorch has the function above for the CPU from 2.3 on only
    found_inf.logical_or_(gradient.isfinite().all().logical_not());
    gradient.mul_(inverse);
  }
  return found_inf;
}

}  // namespace detail

/// Scales a loss, and decides which steps are taken. The options are those of ddp::GradScaler, whose
/// defaults are PyTorch's; get_scale(), update(), is_enabled(), state_dict() and load_state_dict()
/// are its functions. After DistributedDataParallel all ranks have the same gradients, and decide
/// alike; with a group they do where the gradients differ. Gradients on a GPU are checked there, and
/// the host waits once for each optimizer, as PyTorch does. Source: torch.amp.GradScaler.
class GradScaler : private ddp::GradScaler {
 public:
  /// Makes a scaler. Throws Error with Status::InvalidArgument for factors that cannot work.
  explicit GradScaler(const GradScalerOptions& options = {}, const ProcessGroup& group = {})
      : ddp::GradScaler(options), group_(group) {}

  using ddp::GradScaler::get_scale;
  using ddp::GradScaler::is_enabled;
  using ddp::GradScaler::load_state_dict;
  using ddp::GradScaler::state_dict;
  using ddp::GradScaler::update;

  /// Returns the outputs, such as a loss, times the scale.
  at::Tensor scale(const at::Tensor& outputs) const { return is_enabled() ? outputs * get_scale() : outputs; }
  /// Returns each of the outputs times the scale.
  std::vector<at::Tensor> scale(std::vector<at::Tensor> outputs) const {
    for (at::Tensor& output : outputs) output = scale(output);
    return outputs;
  }

  /// Divides the gradients of all parameters of an optimizer by the scale, to inspect or clip them before step().
  /// Collective if there is a group. Throws Error with Status::InvalidArgument if called twice between two calls of
  /// update(), and for gradients of float16, whose small values would become zeros again.
  void unscale_(torch::optim::Optimizer& optimizer) {
    unscale_by(&optimizer, [&] { return !is_enabled() || unscale_all(optimizer); });
  }
  /// Unscales the gradients if unscale_() was not called, then calls optimizer.step() unless a gradient was infinite or
  /// not a number. Returns whether it was called. Once between two calls of update().
  bool step(torch::optim::Optimizer& optimizer) {
    return step_by(
        &optimizer, [&] { unscale_(optimizer); }, [&] { optimizer.step(); });
  }

 private:
  // Returns whether all gradients are finite, on every rank of the group.
  bool unscale_all(torch::optim::Optimizer& optimizer) const {
    const at::NoGradGuard no_grad;
    std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> gradients;  // by device and type
    for (auto& parameters : optimizer.param_groups()) {
      for (const at::Tensor& parameter : parameters.params()) {
        at::Tensor& grad = parameter.mutable_grad();
        if (!grad.defined()) continue;
        if (grad.scalar_type() == at::kHalf) {
          fail("a gradient is float16, where small values unscaled are zeros: keep the parameters in float32");
        }
        if (grad.is_sparse()) grad = grad.coalesce();
        const at::Tensor values = grad.is_sparse() ? grad._values() : grad;
        gradients[{values.device().str(), values.scalar_type()}].push_back(values);
      }
    }
    at::Tensor found_inf;
    for (const auto& [of, same] : gradients) {
      const at::Tensor here = detail::unscale_on_device(same, inverse());
      found_inf = found_inf.defined() ? found_inf.logical_or(here.to(found_inf.device())).to(at::kFloat) : here;
    }
    if (group_) {
      if (!found_inf.defined()) found_inf = at::zeros({1}, device_without_gradients(optimizer));
      libtorch::all_reduce(found_inf, ReduceOp::Max, group_);
    }
    return !found_inf.defined() || found_inf.item<float>() == 0;
  }
  // A rank without gradients takes part in the group's decision.
  static at::TensorOptions device_without_gradients(torch::optim::Optimizer& optimizer) {
    at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
    for (auto& parameters : optimizer.param_groups()) {
      for (const at::Tensor& parameter : parameters.params()) options = options.device(parameter.device());
    }
    return options;
  }

  ProcessGroup group_;
};

}  // namespace ddp::libtorch
