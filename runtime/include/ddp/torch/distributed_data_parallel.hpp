// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedDataParallel for modules of libtorch's.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>
#include <vector>

#include "ddp/distributed_data_parallel.hpp"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"
#include "ddp/torch/graph.hpp"
#include "ddp/torch/reducer.hpp"

namespace ddp::torch {

/// A module whose gradients are the averages over a group's ranks as soon as backward returns:
///
///     ddp::torch::DistributedDataParallel model(net);   // rank 0's parameters and buffers go to everyone
///     torch::optim::SGD optimizer(model->parameters(), 0.1);
///     for (...) {
///       optimizer.zero_grad();
///       loss(model(input), target).backward();          // buckets of gradients travel meanwhile
///       optimizer.step();
///     }
///
/// Its options are those of ddp::DistributedDataParallel, but that the buffers are the module's. Call it, not the
/// module: `model(input)` sees to buffers, unused parameters and join(); `model->forward(input)` is for one rank alone,
/// as in an evaluation on rank 0. The end of each backward is the end of a step: add losses up, or call all but the
/// last backward under no_sync(). What goes wrong in backward throws ddp::Error out of backward(), on every rank that
/// takes part; a parameter that got no gradient is named there.
///
/// Threads: one at a time; backward may use threads of its own. Destroy it before its session; the module may live on.
/// Source: torch.nn.parallel.DistributedDataParallel.
template <typename Module>
class DistributedDataParallel {
 public:
  /// Collective. Throws Error as ddp::DistributedDataParallel does, with Status::Mismatch if the ranks' modules differ.
  DistributedDataParallel(std::shared_ptr<Module> module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)), reducer_(std::make_unique<detail::Reducer>(*module_, group, options)) {}
  /// Over the default group.
  explicit DistributedDataParallel(std::shared_ptr<Module> module, const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(std::move(module), default_group(), options) {}
  /// The same for what TORCH_MODULE makes.
  DistributedDataParallel(const ::torch::nn::ModuleHolder<Module>& module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), group, options) {}
  /// Over the default group.
  explicit DistributedDataParallel(const ::torch::nn::ModuleHolder<Module>& module,
                                   const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), default_group(), options) {}

  /// The module's forward, on every rank. With find_unused_parameters it returns a tensor, or tuples, optionals,
  /// vectors or maps of tensors, in which every parameter's use shows.
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
  /// forward().
  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// From now on, until what it returns is destroyed, gradients stay local and add up; the first backward after that
  /// averages the sum.
  [[nodiscard]] detail::Reducer::NoSync no_sync() { return detail::Reducer::NoSync(*reducer_); }

  /// Runs body, a loop over input of which each rank may have another amount. See ddp::DistributedDataParallel::join().
  template <typename Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    reducer_->join(std::forward<Body>(body), options);
  }
  /// Gradients travel as the hook says. See ddp::DistributedDataParallel::register_comm_hook().
  template <typename Hook>
  void register_comm_hook(Hook&& hook) {
    averaging().register_comm_hook(std::forward<Hook>(hook));
  }
  /// What averages the module's gradients, for other functions of libddp's; its parameters are those of the module that
  /// require a gradient, in the module's order.
  ddp::DistributedDataParallel& averaging() { return reducer_->model(); }

  /// The module.
  Module* operator->() const { return module_.get(); }
  /// The module.
  const std::shared_ptr<Module>& module() const { return module_; }

 private:
  std::shared_ptr<Module> module_;
  std::unique_ptr<detail::Reducer> reducer_;
};

}  // namespace ddp::torch
