// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedDataParallel: averages gradients over a group's ranks while backward goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

namespace detail {
struct ModelDeleter {
  void operator()(ddp_model* model) const { ddp_model_destroy(model); }
};
}  // namespace detail

/// A trainable tensor as the optimizer and backward see it: plain memory. Never owns.
struct Parameter {
  void* value = nullptr;  ///< count elements
  void* grad = nullptr;   ///< count elements, averaged in place; null: DistributedDataParallel::gradient(i) is used
  std::size_t count = 0;  ///< in elements
  DType dtype = DType::Float32;  ///< Float32 or Float64
  Device device = {};            ///< where value and grad are: the CPU
  std::string name;              ///< for error messages

  /// To be filled in.
  Parameter() = default;
  /// Memory of the host, of a C++ type that has a DType.
  template <typename T>
  Parameter(std::string name_, T* value_, T* grad_, std::size_t count_)
      : value(value_), grad(grad_), count(count_), dtype(dtype_of<T>()), name(std::move(name_)) {}
};

/// For those who tune.
struct DistributedDataParallelOptions {
  std::size_t first_bucket_bytes = 1 << 20;  ///< small, so that communication starts early
  std::size_t bucket_bytes = 25 << 20;       ///< of each further one; as PyTorch
};

/// Averages gradients over a group's ranks, in buckets, while backward goes on. Its collectives are the group's: one
/// thread at a time, the group's deadline and errors. Destroy it before its session; in the middle of a step that
/// aborts the group. PyTorch's torch.nn.parallel.DistributedDataParallel.
class DistributedDataParallel {
 public:
  /// Collective. Checks that all ranks have the same parameters, then copies rank 0's values to every rank. Throws
  /// Error with DDP_MISMATCH, naming the first parameter that differs, on every rank. The memory must stay; the list
  /// need not.
  DistributedDataParallel(const ProcessGroup& group, const std::vector<Parameter>& parameters,
                          const DistributedDataParallelOptions& options = {}) {
    std::vector<ddp_parameter> c;
    c.reserve(parameters.size());
    for (const Parameter& p : parameters) {
      c.push_back({p.value,
                   p.grad,
                   p.count,
                   static_cast<std::int32_t>(p.dtype),
                   {p.device.kind, p.device.index},
                   p.name.c_str()});
    }
    const ddp_model_options model_options = {options.first_bucket_bytes, options.bucket_bytes};
    ddp_model* model = nullptr;
    detail::check(ddp_model_create(group.c(), c.data(), c.size(), &model_options, &model));
    model_.reset(model);
  }

  /// Gradient i of this step is complete. May start the reduction of its bucket. Twice in a step is an error that names
  /// the parameter, and final: every later call fails with it too. Does nothing inside no_sync().
  void mark_ready(std::size_t i) { detail::check(ddp_model_mark_ready(model_.get(), i)); }
  /// Waits until every gradient is the average over all ranks. A parameter that was never marked is an error that names
  /// it, and final. The caller's gradients change only once all reductions have succeeded. Does nothing inside
  /// no_sync().
  void synchronize() { detail::check(ddp_model_synchronize(model_.get())); }
  /// Parameter i's gradient: the caller's memory, or the library's if Parameter::grad was null, which is reduced
  /// without a copy and valid as long as this object. T is the parameter's type. Null if there is no parameter i.
  template <typename T = float>
  T* gradient(std::size_t i) {
    return static_cast<T*>(ddp_model_gradient(model_.get(), i));
  }
  /// Number of buckets, for those who tune.
  std::size_t bucket_count() const { return ddp_model_bucket_count(model_.get()); }

  /// While it lives, gradients stay local and may accumulate; the first backward after it reduces the sum.
  class NoSync {
   public:
    /// Made by no_sync().
    explicit NoSync(ddp_model* model) : model_(model) { detail::check(ddp_model_set_no_sync(model_, 1)); }
    ~NoSync() { ddp_model_set_no_sync(model_, 0); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    ddp_model* model_;
  };
  /// From now on, until what it returns is destroyed, gradients stay local.
  [[nodiscard]] NoSync no_sync() { return NoSync(model_.get()); }

 private:
  std::unique_ptr<ddp_model, detail::ModelDeleter> model_;
};

}  // namespace ddp
