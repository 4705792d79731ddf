// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What DistributedDataParallel does to a module's gradients, whatever the module's type is.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/distributed_data_parallel.hpp"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/torch/graph.hpp"
#include "ddp/torch/tensor.hpp"

namespace ddp::torch::detail {

// Called by autograd once it has added to parameter i's gradient.
template <typename Reducer>
struct GradientHook : ::torch::autograd::FunctionPostHook {
  GradientHook(Reducer& reducer_, std::size_t parameter_) : reducer(reducer_), parameter(parameter_) {}
  ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                              const ::torch::autograd::variable_list& /*inputs*/) override {
    reducer.gradient_is_there(parameter);
    return outputs;
  }
  Reducer& reducer;
  std::size_t parameter;
};

// Between autograd, whose gradients are tensors that come and go, and libddp, whose gradients are memory that stays.
//
//     backward: hook of parameter i -> its gradient copied into libddp's memory -> mark_ready(i)
//               ... last hook -> end of backward -> synchronize() -> averages copied back
//
// With gradient_as_bucket_view the gradients are views of that memory, and nothing is copied from the second step on.
// Hooks run on the thread that calls backward, or on a thread a GPU: one at a time takes the lock.
class Reducer {
 public:
  Reducer(const ::torch::nn::Module& module, const ProcessGroup& group, const DistributedDataParallelOptions& options)
      : parameters_(trainable(module)), model_(group, described(), options) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = parameters_[i];
      p.accumulator = ::torch::autograd::impl::grad_accumulator(p.tensor);
      p.hook = p.accumulator->add_post_hook(std::make_unique<GradientHook<Reducer>>(*this, i));
    }
    look_at_gradients();
  }
  ~Reducer() {
    for (Parameter& p : parameters_) p.accumulator->del_post_hook(p.hook);
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  DistributedDataParallel& model() { return model_; }

  // Gradients stay local, or do no longer.
  void set_no_sync(bool enabled) {
    const std::lock_guard<std::mutex> lock(mutex_);
    no_sync_ = enabled;
  }

  // For GradientHook.
  void gradient_is_there(std::size_t i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::NoGradGuard no_grad;
    if (no_sync_) return;
    Parameter& p = parameters_[i];
    at::Tensor& grad = p.tensor.mutable_grad();
    if (grad.defined() && grad.is_sparse()) {
      throw Error(DDP_INVALID_ARGUMENT, "DistributedDataParallel: the gradient of " + p.name +
                                            " is sparse: only dense ones are averaged (an embedding makes them with "
                                            "sparse(false))");
    }
    if (!in_backward_) {
      in_backward_ = true;
      ::torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
    }
    if (grad.defined()) {
      p.averaged.copy_(grad);
    } else {
      p.averaged.zero_();
    }
    const CurrentStream stream(p.averaged);
    model_.mark_ready(i);
  }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    at::Tensor averaged;                                                            // libddp's memory of its gradient
    decltype(::torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;  // kept, or its hook would go
    std::uintptr_t hook = 0;
  };

  // Each once, also where two modules share it.
  static std::vector<Parameter> trainable(const ::torch::nn::Module& module) {
    std::vector<Parameter> result;
    std::unordered_set<const at::TensorImpl*> seen;
    for (const auto& named : module.named_parameters()) {
      const at::Tensor& tensor = named.value();
      if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      result.push_back({named.key(), tensor, {}, nullptr});
    }
    if (result.empty()) {
      throw Error(DDP_INVALID_ARGUMENT,
                  "DistributedDataParallel: the module has no parameter that requires a gradient: there is nothing to "
                  "average");
    }
    return result;
  }

  std::vector<ddp::Parameter> described() const {
    std::vector<ddp::Parameter> result;
    for (const Parameter& p : parameters_) {
      const Buffer value = buffer(p.tensor);
      ddp::Parameter described;
      described.value = value.data;
      described.count = value.count;
      described.dtype = value.dtype;
      described.device = value.device;
      described.name = p.name;
      result.push_back(std::move(described));
    }
    return result;
  }

  void look_at_gradients() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = parameters_[i];
      p.averaged = at::from_blob(model_.gradient<void>(i), p.tensor.sizes(), p.tensor.options().requires_grad(false));
    }
  }

  void end_of_backward() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const at::NoGradGuard no_grad;
    in_backward_ = false;
    model_.synchronize();
    for (Parameter& p : parameters_) {
      at::Tensor& grad = p.tensor.mutable_grad();
      if (grad.defined()) {
        grad.copy_(p.averaged);
      } else {
        grad = p.averaged.clone();
      }
    }
  }

  std::mutex mutex_;
  std::vector<Parameter> parameters_;
  DistributedDataParallel model_;
  bool in_backward_ = false;
  bool no_sync_ = false;
};

}  // namespace ddp::torch::detail
