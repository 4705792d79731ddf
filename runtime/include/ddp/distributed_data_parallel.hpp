// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedDataParallel: averages gradients over a group's ranks while backward is still
/// running.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/comm_hook.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

namespace detail {
struct ModelDeleter {
  void operator()(ddp_reducer* model) const { ddp_reducer_destroy(model); }
};
}  // namespace detail

/// How DistributedDataParallel works; the names are those of PyTorch's arguments. All ranks give
/// equal options, except for gradient_as_bucket_view.
struct DistributedDataParallelOptions {
  std::size_t first_bucket_bytes = 1 << 20;  ///< size of the first bucket, small so that communication starts early
  std::size_t bucket_bytes = 25 << 20;       ///< size of each further bucket
  std::vector<Parameter> buffers = {};       ///< tensors of the model that are not trained, such as running statistics
  bool broadcast_buffers =
      true;  ///< whether before_forward() copies rank 0's buffers to all ranks; false: only at creation
  bool find_unused_parameters =
      false;                  ///< whether a parameter that is not marked in a step is unused by this rank, not an error
  bool static_graph = false;  ///< whether each is marked as often as in the first step: maybe never, maybe twice
  bool gradient_as_bucket_view =
      false;  ///< whether gradients live in the buckets, so that none is copied: every grad is null
};

/// How join() works; the names are those of PyTorch's arguments.
struct JoinOptions {
  bool divide_by_initial_world_size = true;  ///< false: gradients are averaged only over the ranks that have input
  bool throw_on_early_termination = false;   ///< whether all ranks throw as soon as one has no input left
};

/// Averages gradients over a group's ranks, in buckets, while backward is still running. Its
/// collectives are the group's: one thread at a time, the group's deadline and errors. Destroy it
/// before its session; in the middle of a step that aborts the group. Source:
/// torch.nn.parallel.DistributedDataParallel.
///
/// Parameters may be on a GPU if the group has a backend for it. Then mark_ready() and
/// synchronize() follow this thread's current stream (ddp/cuda.hpp), as the group's operations do,
/// and the host does not wait, except in the first step and with find_unused_parameters. gradient()
/// is memory of that GPU.
///
/// Buckets are filled from the last parameter to the first. After the first step they are built
/// again in the order in which gradients came on rank 0, unless find_unused_parameters says that
/// there is no such order, or a gradient's memory may not move.
class DistributedDataParallel {
 public:
  /// Checks that all ranks have the same parameters and buffers, then copies rank 0's values to every
  /// rank. Collective. Throws Error with Status::Mismatch on every rank, which names the first that
  /// differs and both shapes. The memory must stay, or set_value() and its neighbours name other
  /// memory; the list need not stay.
  DistributedDataParallel(const ProcessGroup& group, const std::vector<Parameter>& parameters,
                          const DistributedDataParallelOptions& options = {})
      : count_(parameters.size()) {
    const std::vector<ddp_parameter> trained = c(parameters);
    const std::vector<ddp_parameter> buffers = c(options.buffers);
    ddp_reducer_options model_options = DDP_REDUCER_OPTIONS_INIT;
    model_options.first_bucket_bytes = options.first_bucket_bytes;
    model_options.bucket_bytes = options.bucket_bytes;
    model_options.buffers = buffers.data();
    model_options.buffer_count = buffers.size();
    model_options.find_unused_parameters = options.find_unused_parameters ? 1 : 0;
    model_options.static_graph = options.static_graph ? 1 : 0;
    model_options.gradient_as_bucket_view = options.gradient_as_bucket_view ? 1 : 0;
    model_options.no_broadcast_buffers = options.broadcast_buffers ? 0 : 1;
    ddp_reducer* model = nullptr;
    detail::check(ddp_reducer_create(group.c(), trained.data(), trained.size(), &model_options, &model));
    model_.reset(model);
  }

  /// Begins a step: copies rank 0's buffers to all ranks, and inside join() informs ranks without
  /// input that there is another step. Call it before each forward if there are buffers, or inside
  /// join(). Inside no_sync() buffers are left alone, except before the first forward after one
  /// that synchronizes, as in PyTorch.
  void before_forward() { check(ddp_reducer_before_forward(model_.get())); }
  /// Marks gradient i of this step as complete, which may start the reduction of its bucket. Marking
  /// a parameter twice in a step (with static_graph: more often than in the first step) is an error
  /// that names it, and it is final: every later call fails with it too. Inside no_sync() the mark
  /// only counts as a use.
  void mark_ready(std::size_t i) { check(ddp_reducer_mark_ready(model_.get(), i)); }
  /// Marks all gradients of this step as complete, from the last to the first: for a backward that does not tell when
  /// each is done, so that nothing is reduced while it runs. Fails as mark_ready() does.
  void mark_all_ready() {
    for (std::size_t i = count_; i > 0; --i) mark_ready(i - 1);
  }
  /// Marks gradient i as unused in this step, so that its bucket need not wait for synchronize() to
  /// find that out. For find_unused_parameters.
  void mark_unused(std::size_t i) { check(ddp_reducer_mark_unused(model_.get(), i)); }
  /// Waits until every gradient is the average over all ranks. A parameter that was never marked is
  /// an error that names it, and it is final; with find_unused_parameters this rank contributes
  /// what its gradient holds, as PyTorch does: zeros, or what has added up over earlier steps. If no
  /// rank used a parameter, its gradient stays as it was. The caller's gradients change only after all
  /// reductions have succeeded. Does nothing inside no_sync().
  void synchronize() { check(ddp_reducer_synchronize(model_.get())); }
  /// Returns whether any rank used parameter i in the last step. If not, its gradient is not an
  /// average, but what it was.
  bool was_used(std::size_t i) const { return ddp_reducer_was_used(model_.get(), i) != 0; }
  /// Returns the memory of gradient i: the caller's, or if Parameter::grad was null memory in a
  /// bucket, which is reduced without a copy and valid as long as this object. With
  /// gradient_as_bucket_view it moves once, values and all, in the first synchronize() outside
  /// no_sync(), or in join(): call again after it. T is the parameter's type. Null if there is no
  /// parameter i.
  template <typename T = float>
  T* gradient(std::size_t i) {
    return static_cast<T*>(ddp_reducer_gradient(model_.get(), i));
  }
  /// Sets where the value of parameter i is from now on, if its memory has moved. The new memory has as
  /// many elements of the same type, and holds the parameter's values, which join() reads and writes.
  /// Call it between steps; it is not collective. Throws Error with Status::InvalidArgument in the middle of a step.
  void set_value(std::size_t i, void* value) { check(ddp_reducer_set_value(model_.get(), i, value)); }
  /// Sets where the gradient of parameter i is from now on, as set_value() does. For a parameter that
  /// was given with a gradient.
  void set_gradient(std::size_t i, void* grad) { check(ddp_reducer_set_gradient(model_.get(), i, grad)); }
  /// Sets where buffer i of the options is from now on, as set_value() does.
  void set_buffer(std::size_t i, void* value) { check(ddp_reducer_set_buffer(model_.get(), i, value)); }
  /// Returns the number of buckets, for tuning.
  std::size_t bucket_count() const { return ddp_reducer_bucket_count(model_.get()); }

  /// Registers a hook that replaces the plain average. Once, before the first backward, on every
  /// rank.
  void register_comm_hook(std::shared_ptr<CommHook> hook) {
    auto call = std::make_unique<detail::HookCall>(std::move(hook));
    const ddp_comm_hook c = call->c();
    detail::check(ddp_reducer_register_comm_hook(model_.get(), &c));
    hook_ = std::move(call);
  }

  /// Registers one of libddp's own hooks: allreduce_hook, fp16_compress_hook, bf16_compress_hook.
  void register_comm_hook(BuiltinCommHook hook) {
    detail::check(ddp_reducer_register_builtin_comm_hook(model_.get(), static_cast<std::int32_t>(hook)));
  }

  /// Runs body, a loop over input of which each rank may have a different amount; each step begins
  /// with before_forward(). A rank that has finished takes part in the others' steps with zeros
  /// until all have finished. Then all ranks take the model of the rank that finished last, or of
  /// the highest of several. With throw_on_early_termination all ranks throw Error with Status::Mismatch instead,
  /// which names the first rank that had no input left.
  template <typename Body>
  void join(Body&& body, const JoinOptions& options = {}) {
    const ddp_reducer_join_options c = {sizeof(ddp_reducer_join_options), options.divide_by_initial_world_size ? 0 : 1,
                                        options.throw_on_early_termination ? 1 : 0};
    detail::check(ddp_reducer_join_begin(model_.get(), &c));
    try {
      body();
    } catch (...) {
      ddp_reducer_join_cancel(model_.get());
      throw;
    }
    check(ddp_reducer_join_end(model_.get()));
  }

  /// Keeps gradients local while it lives, so that they may accumulate; the first backward after it
  /// reduces the sum. One NoSync may be inside another.
  class NoSync {
   public:
    /// Begins the part without averages; made by no_sync().
    explicit NoSync(ddp_reducer* model) : model_(model), before_(ddp_reducer_no_sync(model)) {
      detail::check(ddp_reducer_set_no_sync(model_, 1));
    }
    /// Averages gradients again, unless this NoSync is inside another one.
    ~NoSync() { ddp_reducer_set_no_sync(model_, before_); }  // the next call reports an error too
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    ddp_reducer* model_;
    std::int32_t before_;  // whether averaging was off
  };
  /// Keeps gradients local until the object that it returns is destroyed.
  [[nodiscard]] NoSync no_sync() { return NoSync(model_.get()); }
  /// Returns the reducer of ddp.h.
  ddp_reducer* c() const { return model_.get(); }

 private:
  static std::vector<ddp_parameter> c(const std::vector<Parameter>& tensors) {
    std::vector<ddp_parameter> result;
    result.reserve(tensors.size());
    for (const Parameter& t : tensors) {
      const bool has_shape = !t.shape.empty();
      result.push_back({t.value, t.grad, t.count, static_cast<std::int32_t>(t.dtype), t.device.c(), t.name.c_str(),
                        has_shape ? t.shape.data() : nullptr, t.shape.size()});
    }
    return result;
  }
  // Rethrows what a hook threw.
  void check(ddp_status status) {
    if (status != DDP_OK && hook_ != nullptr) hook_->rethrow();
    detail::check(status);
  }

  std::size_t count_;                       // number of parameters
  std::unique_ptr<detail::HookCall> hook_;  // destroyed after the model
  std::unique_ptr<ddp_reducer, detail::ModelDeleter> model_;
};

}  // namespace ddp
