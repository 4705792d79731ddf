// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedDataParallel for modules of libtorch.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/comm_hook.hpp"
#include "ddp/distributed_data_parallel.hpp"
#include "ddp/error.hpp"
#include "ddp/libtorch/comm_hook.hpp"
#include "ddp/libtorch/reducer.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp::libtorch {

/// Wraps a module so that its gradients are the averages over a group's ranks as soon as backward
/// returns:
///
///     ddp::libtorch::DistributedDataParallel model(net);   // rank 0's parameters and buffers go to everyone
///     torch::optim::SGD optimizer(model->parameters(), 0.1);
///     for (...) {
///       optimizer.zero_grad();
///       loss(model(input), target).backward();          // buckets of gradients travel meanwhile
///       optimizer.step();
///     }
///
/// Its options are those of ddp::DistributedDataParallel, except that the buffers are the module's.
/// Call it, not the module: `model(input)` handles buffers, unused parameters and join();
/// `model->forward(input)` is for one rank alone, as in an evaluation on rank 0. Each backward ends
/// a step: add losses up, or call all but the last backward under no_sync(). A failure in backward
/// throws ddp::Error out of backward(), on every rank that takes part; it names a parameter that
/// got no gradient.
///
/// The module's tensors may move to other memory between steps, as by torch::load() or set_data():
/// values are not sent again, so every rank does it. If their types, shapes or number change, the
/// next call throws Error with Status::InvalidArgument, which names the tensor.
///
/// Threads: one at a time; backward may use threads of its own. Destroy it before its session; the module may live on.
/// Source: torch.nn.parallel.DistributedDataParallel.
template <typename Module>
class DistributedDataParallel {
 public:
  /// Wraps a module, for a group. Collective. Throws Error as ddp::DistributedDataParallel does, with
  /// Status::Mismatch if the ranks' modules differ.
  DistributedDataParallel(std::shared_ptr<Module> module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)),
        group_(group),
        reducer_(std::make_unique<detail::Reducer>(*module_, group, options)) {}
  /// Wraps a module, for the default group.
  explicit DistributedDataParallel(std::shared_ptr<Module> module, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(std::move(module), default_group(), options) {}
  /// Wraps a module that TORCH_MODULE makes, for a group.
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), group, options) {}
  /// Wraps a module that TORCH_MODULE makes, for the default group.
  explicit DistributedDataParallel(const torch::nn::ModuleHolder<Module>& module,
                                   const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), default_group(), options) {}

  /// Calls the module's forward, on every rank. With find_unused_parameters the module returns a
  /// tensor, or tuples, optionals, vectors or maps of tensors, and a parameter is used if one of
  /// them depends on it. Throws Error with Status::InvalidArgument if the module is not what it was
  /// when this object was made, except for its tensors' memory and values.
  template <typename... Args>
  auto forward(Args&&... args) {
    reducer_->before_forward();
    auto outputs = module_->forward(std::forward<Args>(args)...);
    if (reducer_->looks_at_outputs()) {
      std::vector<at::Tensor> tensors;
      if (!detail::append_tensors(outputs, tensors)) {
        throw Error(Status::InvalidArgument,
                    "DistributedDataParallel: find_unused_parameters cannot look into what this module's forward "
                    "returns: return a tensor, or tuples, optionals, vectors or maps of tensors");
      }
      reducer_->note_outputs(tensors);
    }
    return outputs;
  }
  /// Calls forward().
  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// Keeps gradients local, so that they add up, until the object that it returns is destroyed; the
  /// first backward after that averages the sum.
  [[nodiscard]] ddp::DistributedDataParallel::NoSync no_sync() { return averaging().no_sync(); }

  /// Runs body, a loop over input of which each rank may have a different amount, as
  /// ddp::DistributedDataParallel::join() does.
  template <typename Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    reducer_->join(std::forward<Body>(body), options);
  }
  /// Registers a hook that replaces the plain average. Once, before the first backward, on every rank. It is one of
  /// libddp's own, such as ddp::fp16_compress_hook, a shared_ptr to a CommHook, or a function that
  /// takes a GradBucket of tensors, starts its exchange, and returns a function (or nullptr) that ends it
  /// (ddp/libtorch/comm_hook.hpp).
  template <typename Hook>
  void register_comm_hook(Hook&& hook) {
    using Function = std::decay_t<Hook>;
    if constexpr (std::is_invocable_v<Function&, const GradBucket&>) {
      averaging().register_comm_hook(
          std::shared_ptr<CommHook>(std::make_shared<detail::FunctionHook<Function>>(std::forward<Hook>(hook))));
    } else if constexpr (std::is_same_v<Function, BuiltinCommHook>) {
      register_builtin(hook);
    } else {
      averaging().register_comm_hook(std::forward<Hook>(hook));
    }
  }
  /// Returns the object that averages the module's gradients, for other functions of libddp. Its
  /// parameters are those of the module that require a gradient, in the module's order.
  ddp::DistributedDataParallel& averaging() { return reducer_->model(); }

  /// Gives access to the module's members.
  Module* operator->() const { return module_.get(); }
  /// Returns the module.
  const std::shared_ptr<Module>& module() const { return module_; }

 private:
  // libddp itself rounds gradients in CPU memory only.
  void register_builtin(BuiltinCommHook hook) {
    const bool on_gpu = reducer_->is_on_gpu();
    if (on_gpu && hook == fp16_compress_hook) return register_comm_hook(detail::CompressHook{at::kHalf, group_});
    if (on_gpu && hook == bf16_compress_hook) return register_comm_hook(detail::CompressHook{at::kBFloat16, group_});
    averaging().register_comm_hook(hook);
  }

  std::shared_ptr<Module> module_;
  ProcessGroup group_;
  std::unique_ptr<detail::Reducer> reducer_;
};

}  // namespace ddp::libtorch
