// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SyncBatchNorm for modules of libtorch: batch normalisation by the statistics of all ranks' rows.
///
///     torch::nn::Sequential net(torch::nn::Conv2d(...), torch::nn::BatchNorm2d(16), ...);
///     ddp::libtorch::convert_sync_batchnorm(net);              // before the optimizer and the model are made
///     ddp::libtorch::DistributedDataParallel model(net);
///
/// A class of your own has members of the types that it names, which nothing can replace: declare
/// ddp::libtorch::SyncBatchNorm there. Where there is one rank, or no group, it is a plain BatchNorm.
#pragma once

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/libtorch/collectives.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp::libtorch {

namespace detail {

// Statistics of a batch's channels over all ranks, as tensors with an element for each channel.
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor variance;  // biased
  at::Tensor count;     // number of values in a channel
};

// Dimensions of a batch without the channels'.
inline std::vector<std::int64_t> all_but_channels(const at::Tensor& batch) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t d = 2; d < batch.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}
// Returns one value for each channel in a shape that meets the batch's.
inline at::Tensor beside(const at::Tensor& batch, const at::Tensor& channels) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(batch.dim()), 1);
  shape[1] = batch.size(1);
  return channels.to(batch.scalar_type()).view(shape);
}
// Statistics of 16-bit numbers are computed with 32 bits.
inline at::ScalarType wide_type_of(const at::Tensor& tensor) {
  const bool is_short = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return is_short ? at::kFloat : tensor.scalar_type();
}
inline at::Tensor widened(const at::Tensor& tensor) { return tensor.to(wide_type_of(tensor)); }

// Merges all ranks' means and squared distances from them, in double and in the order of ranks, as
// ddp::SyncBatchNorm does. Nothing waits on the host.
inline BatchStatistics statistics_of_ranks(const at::Tensor& batch, const ProcessGroup& group) {
  const std::int64_t channels = batch.size(1);
  const double count = static_cast<double>(batch.numel() / channels);
  at::Tensor told = at::zeros({2 * channels + 1}, batch.options().dtype(at::kDouble).requires_grad(false));
  if (batch.numel() > 0) {
    const auto [variance, mean] = at::var_mean(batch, all_but_channels(batch), /*unbiased=*/false, /*keepdim=*/false);
    told.narrow(0, 0, channels).copy_(mean);
    told.narrow(0, channels, channels).copy_(variance).mul_(count);
    told.select(0, 2 * channels).fill_(count);
  }
  const at::Tensor all = libtorch::all_gather(told, group);
  const at::Tensor means = all.narrow(1, 0, channels), counts = all.narrow(1, 2 * channels, 1);
  BatchStatistics whole;
  whole.count = counts.sum();
  whole.mean = (means * counts).sum(0) / whole.count;
  const at::Tensor between = (means - whole.mean).square() * counts;
  whole.variance = (all.narrow(1, channels, channels) + between).sum(0) / whole.count;
  return whole;
}

// Batch normalisation over a group's ranks, as a node of autograd's graph.
class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, const BatchStatistics& whole, double eps,
                            const ProcessGroup& group) {
    context->save_for_backward({input, weight, whole.mean, whole.variance, whole.count});
    context->saved_data["eps"] = eps;
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group.c());
    if (input.numel() == 0) return at::empty_like(input);
    const at::ScalarType type = wide_type_of(input);
    return std::get<0>(at::native_batch_norm(input, weight, bias, whole.mean.to(type), whole.variance.to(type),
                                             /*training=*/false, 0, eps));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grad_outputs) {
    if (at::GradMode::is_enabled()) {
      throw Error(Status::InvalidArgument,
                  "SyncBatchNorm: its gradient has no gradient of its own: call backward without create_graph");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &count = saved[4];
    const at::Tensor inverse = (saved[3] + context->saved_data["eps"].toDouble()).rsqrt();
    const auto channels = all_but_channels(input);
    const at::Tensor grad = widened(grad_outputs[0]);
    at::Tensor distance = widened(input);
    distance = distance - beside(distance, saved[2]);
    const at::Tensor sum = grad.sum(channels).to(at::kDouble);
    const at::Tensor sum_distance = (grad * distance).sum(channels).to(at::kDouble);

    torch::autograd::variable_list result(6);
    if (context->needs_input_grad(0)) {
      const at::Tensor sums = at::stack({sum, sum_distance});
      auto* const group = reinterpret_cast<ddp_group*>(context->saved_data["group"].toInt());
      libtorch::all_reduce(sums, {}, ProcessGroup(group));
      const at::Tensor means = sums / count;
      const at::Tensor scale = weight.defined() ? inverse * weight : inverse;
      distance.mul_(beside(distance, -means[1] * inverse * inverse)).add_(grad).sub_(beside(distance, means[0]));
      result[0] = distance.mul_(beside(distance, scale)).to(input.scalar_type());
    }
    if (weight.defined()) {
      // Averages over ranks are DistributedDataParallel's task.
      result[1] = (sum_distance * inverse).to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    return result;
  }
};

}  // namespace detail

/// Batch normalisation over the rows of all ranks of a group, of any number of dimensions: batch,
/// channels, and what else there is. Parameters and buffers have the names of those of
/// torch::nn::BatchNorm2d. In evaluation, on one rank, and without a group it computes what
/// torch::nn::BatchNorm2d computes; in training forward and backward are collectives. Sums over
/// ranks are in 64 bits. Source: torch.nn.SyncBatchNorm, which works on GPUs only.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
  using Base = torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions>;

 public:
  /// Makes a layer for num_features channels, with PyTorch's defaults.
  explicit SyncBatchNormImpl(std::int64_t num_features)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(num_features)) {}
  /// Makes a layer. Without a group, each forward takes ddp::default_group(), if there is one.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_, const ProcessGroup& process_group = {})
      : Base(options_), group_(process_group) {}
  /// Makes a layer of one of torch::nn::BatchNorm1d, 2d or 3d. It has the same parameters, which an optimizer may
  /// have already, and the same memory for running statistics.
  template <std::size_t D, typename Derived>
  explicit SyncBatchNormImpl(const torch::nn::BatchNormImplBase<D, Derived>& plain,
                             const ProcessGroup& process_group = {})
      : Base(plain.options), group_(process_group) {
    if (plain.weight.defined()) weight = parameters_["weight"] = plain.weight;
    if (plain.bias.defined()) bias = parameters_["bias"] = plain.bias;
    if (plain.running_mean.defined()) running_mean.set_data(plain.running_mean);
    if (plain.running_var.defined()) running_var.set_data(plain.running_var);
    if (plain.num_batches_tracked.defined()) num_batches_tracked.set_data(plain.num_batches_tracked);
    train(plain.is_training());
  }

  /// Normalises a batch. Throws Error with Status::InvalidArgument for a batch of fewer than two dimensions or of other
  /// channels, and as all_gather() does.
  at::Tensor forward(const at::Tensor& input) {
    _check_input_dim(input);
    const double momentum = next_momentum();
    const ProcessGroup group = this->group();
    if (is_training() && group && group.size() > 1) {
      const detail::BatchStatistics whole = detail::statistics_of_ranks(detail::widened(input.detach()), group);
      follow(whole, momentum);
      return detail::SyncBatchNormFunction::apply(input, weight, bias, whole, options.eps(), group);
    }
    const bool has_running = running_mean.defined() && running_var.defined();
    return at::batch_norm(input, weight, bias, running_mean, running_var, is_training() || !has_running, momentum,
                          options.eps(), at::globalContext().userEnabledCuDNN());
  }
  /// Returns the group whose ranks it spans now.
  ProcessGroup group() const { return !group_ && is_initialized() ? default_group() : group_; }
  /// Prints the layer and its options.
  void pretty_print(std::ostream& stream) const override {
    stream << "ddp::libtorch::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
  }

 protected:
  /// Throws unless the input is a batch of this layer's channels.
  void _check_input_dim(const at::Tensor& input) override {
    if (input.dim() >= 2 && input.size(1) == options.num_features() && input.size(1) > 0) return;
    throw Error(Status::InvalidArgument, c10::str("SyncBatchNorm: an input of shape ", input.sizes(),
                                                  " is no batch of ", options.num_features(), " channels"));
  }

 private:
  // Counts a batch, and returns its weight in the running statistics.
  double next_momentum() {
    if (!is_training() || !num_batches_tracked.defined()) return options.momentum().value_or(0);
    num_batches_tracked.add_(1);
    return options.momentum().has_value() ? *options.momentum() : 1 / num_batches_tracked.item<double>();
  }
  void follow(const detail::BatchStatistics& whole, double momentum) {
    const at::NoGradGuard no_grad;
    if (running_mean.defined()) {
      running_mean.mul_(1 - momentum).add_(whole.mean.to(running_mean.scalar_type()), momentum);
    }
    if (running_var.defined()) {
      const at::Tensor unbiased = whole.variance * whole.count / (whole.count - 1);
      running_var.mul_(1 - momentum).add_(unbiased.to(running_var.scalar_type()), momentum);
    }
  }

  ProcessGroup group_;
};

/// A SyncBatchNormImpl as modules hold it.
class SyncBatchNorm : public torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
  using Impl = SyncBatchNormImpl;  ///< the module itself
};

namespace detail {

// Returns a SyncBatchNorm of a BatchNorm1d, 2d or 3d; null for any other module.
inline std::shared_ptr<SyncBatchNormImpl> synchronized(const torch::nn::Module& module, const ProcessGroup& group) {
  const auto of = [&](const auto* plain) {
    return plain != nullptr ? std::make_shared<SyncBatchNormImpl>(*plain, group) : nullptr;
  };
  if (auto sync = of(module.as<torch::nn::BatchNorm1dImpl>())) return sync;
  if (auto sync = of(module.as<torch::nn::BatchNorm2dImpl>())) return sync;
  return of(module.as<torch::nn::BatchNorm3dImpl>());
}

// Replaces layers of Sequentials, which hold modules of any type; a module's members have the types that it names.
class SyncBatchNormConversion {
 public:
  explicit SyncBatchNormConversion(const ProcessGroup& group) : group_(group) {}

  void convert(torch::nn::Module& module) {
    if (synchronized(module, group_)) fixed_ = "the module itself";
    look(module, "");
    if (!fixed_.empty()) {
      throw Error(Status::InvalidArgument,
                  "convert_sync_batchnorm: a module's members cannot be replaced by others: " + fixed_ +
                      ". Declare them as ddp::libtorch::SyncBatchNorm, or put them into a Sequential");
    }
    for (const Place& place : places_) {
      const auto& sync = converted_.at(place.layer.get());
      for (torch::nn::AnyModule& held : *place.parent) {
        if (held.ptr() == place.layer) held = torch::nn::AnyModule(sync);
      }
      place.parent->replace_module(place.name, sync);
    }
  }

 private:
  struct Place {
    torch::nn::SequentialImpl* parent;
    std::string name;
    std::shared_ptr<torch::nn::Module> layer;
  };

  void look(torch::nn::Module& module, const std::string& prefix) {
    auto* const sequential = module.as<torch::nn::SequentialImpl>();
    for (const auto& child : module.named_children()) {
      const std::string name = prefix + child.key();
      if (auto sync = synchronized(*child.value(), group_)) {
        if (sequential != nullptr && holds(*sequential, child.value())) {
          places_.push_back({sequential, child.key(), child.value()});
          converted_.emplace(child.value().get(), std::move(sync));  // a layer in two places stays one
        } else {
          fixed_ += (fixed_.empty() ? "" : ", ") + name;
        }
      } else {
        look(*child.value(), name + ".");
      }
    }
  }
  static bool holds(torch::nn::SequentialImpl& sequential, const std::shared_ptr<torch::nn::Module>& layer) {
    return std::any_of(sequential.begin(), sequential.end(),
                       [&](const torch::nn::AnyModule& held) { return held.ptr() == layer; });
  }

  const ProcessGroup& group_;
  std::vector<Place> places_;
  std::unordered_map<const torch::nn::Module*, std::shared_ptr<SyncBatchNormImpl>> converted_;
  std::string fixed_;  // names of layers that cannot be replaced
};

}  // namespace detail

/// Replaces every torch::nn::BatchNorm1d, 2d and 3d in the Sequentials of a module by a
/// SyncBatchNorm with the same parameters, buffers and options, and returns the module. Without a
/// process_group, each forward takes ddp::default_group(). Throws Error with
/// Status::InvalidArgument, and changes nothing, if such a layer is a member of another module,
/// which has it by its type: it names them. Source: torch.nn.SyncBatchNorm.convert_sync_batchnorm.
template <typename Module>
std::shared_ptr<Module> convert_sync_batchnorm(const std::shared_ptr<Module>& module,
                                               const ProcessGroup& process_group = {}) {
  detail::SyncBatchNormConversion(process_group).convert(*module);
  return module;
}
/// Does that for a module that TORCH_MODULE makes; a BatchNorm1d, 2d or 3d itself becomes the SyncBatchNorm that is
/// returned.
template <typename Holder, typename Impl = typename Holder::ContainedType>
auto convert_sync_batchnorm(const Holder& module, const ProcessGroup& process_group = {}) {
  if constexpr (std::is_base_of_v<torch::nn::BatchNorm1dImpl, Impl> ||
                std::is_base_of_v<torch::nn::BatchNorm2dImpl, Impl> ||
                std::is_base_of_v<torch::nn::BatchNorm3dImpl, Impl>) {
    return SyncBatchNorm(std::make_shared<SyncBatchNormImpl>(*module, process_group));
  } else {
    detail::SyncBatchNormConversion(process_group).convert(*module.ptr());
    return module;
  }
}

}  // namespace ddp::libtorch
