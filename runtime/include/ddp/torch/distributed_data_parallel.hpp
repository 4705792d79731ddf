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
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"
#include "ddp/torch/reducer.hpp"

namespace ddp::torch {

/// A module whose gradients are the averages over a group's ranks as soon as backward returns.
template <typename Module>
class DistributedDataParallel {
 public:
  /// Collective.
  explicit DistributedDataParallel(std::shared_ptr<Module> module, const ProcessGroup& group = default_group(),
                                   const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)), reducer_(std::make_unique<detail::Reducer>(*module_, group, options)) {}
  /// The same for what TORCH_MODULE made.
  explicit DistributedDataParallel(const ::torch::nn::ModuleHolder<Module>& module,
                                   const ProcessGroup& group = default_group(),
                                   const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(module.ptr(), group, options) {}

  /// The module's own forward.
  template <typename... Args>
  auto forward(Args&&... args) {
    return module_->forward(std::forward<Args>(args)...);
  }
  /// forward().
  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// While it lives, gradients stay local and add up; the first backward after it averages the sum.
  class NoSync {
   public:
    /// Made by no_sync().
    explicit NoSync(detail::Reducer& reducer) : reducer_(reducer) { reducer_.set_no_sync(true); }
    ~NoSync() { reducer_.set_no_sync(false); }
    NoSync(const NoSync&) = delete;             ///< a scope's own
    NoSync& operator=(const NoSync&) = delete;  ///< likewise

   private:
    detail::Reducer& reducer_;
  };
  /// From now on, until what it returns is destroyed, gradients stay local.
  [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

  /// The module.
  Module* operator->() const { return module_.get(); }
  /// The module.
  const std::shared_ptr<Module>& module() const { return module_; }

 private:
  std::shared_ptr<Module> module_;
  std::unique_ptr<detail::Reducer> reducer_;
};

}  // namespace ddp::torch
