// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication hooks on tensors of libtorch: functions that replace the plain average of gradients.
///
///     model.register_comm_hook([](const ddp::libtorch::GradBucket& bucket) {
///       const torch::Tensor gradients = bucket.buffer().div_(ddp::get_world_size());
///       const ddp::libtorch::Work work = ddp::libtorch::all_reduce_async(gradients);
///       return [work] { work.wait(); };                        // called when the result is needed
///     });
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/libtorch/collectives.hpp"
#include "ddp/libtorch/tensor.hpp"
#include "ddp/process_group.hpp"

namespace ddp::libtorch {

/// Gradients that travel together, as tensors. They are views of the bucket: what they hold when the
/// hook has ended is what the module gets. Source: torch.distributed.GradBucket.
class GradBucket {
 public:
  /// Makes a view of a bucket of libddp.
  explicit GradBucket(const ddp::GradBucket& bucket)
      : index_(bucket.index()), is_last_(bucket.is_last()), buffer_(tensor(bucket.buffer(), {})) {
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      gradients_.push_back(tensor(bucket.gradient(k), bucket.shape(k)));
      parameters_.push_back(bucket.parameter(k));
    }
  }
  /// Returns the bucket's number; the first that is reduced has 0.
  std::size_t index() const { return index_; }
  /// Returns whether it is the last bucket of the step.
  bool is_last() const { return is_last_; }
  /// Returns all of its gradients as one tensor of one dimension: this rank's own, not divided.
  const at::Tensor& buffer() const { return buffer_; }
  /// Returns each gradient as a tensor, whose shape is the order in which its elements lie in memory: for a parameter
  /// that is contiguous, its shape.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// Returns the numbers of the gradients' parameters, among those of the module that require a gradient.
  const std::vector<std::size_t>& parameters() const { return parameters_; }

 private:
  static at::Tensor tensor(const Buffer& buffer, std::vector<std::int64_t> shape) {
    if (shape.empty()) shape.push_back(static_cast<std::int64_t>(buffer.count));
    at::TensorOptions options = at::TensorOptions().dtype(scalar_type_of(buffer.dtype));
    if (buffer.device.kind == DeviceKind::Cuda) {
      options = options.device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(buffer.device.index)));
    }
    return at::from_blob(buffer.data, shape, options);
  }

  std::size_t index_;
  bool is_last_;
  at::Tensor buffer_;
  std::vector<at::Tensor> gradients_;
  std::vector<std::size_t> parameters_;
};

namespace detail {

// A hook that is a function: it starts a bucket's exchange, and returns what ends it.
template <typename Hook>
class FunctionHook : public CommHook {
 public:
  explicit FunctionHook(Hook hook) : hook_(std::move(hook)) {}
  void start(const ddp::GradBucket& bucket) override { ends_[bucket.index()] = hook_(GradBucket(bucket)); }
  bool advance(const ddp::GradBucket& bucket) override {
    const auto end = std::exchange(ends_[bucket.index()], nullptr);
    if (end) end();
    return false;
  }

 private:
  Hook hook_;
  std::map<std::size_t, std::function<void()>> ends_;  // by the bucket's number
};

// The function for fp16_compress_hook and bf16_compress_hook on a GPU: averages gradients that are rounded to 16 bits.
struct CompressHook {
  at::ScalarType type;
  ProcessGroup group;

  std::function<void()> operator()(const GradBucket& bucket) const {
    const at::Tensor gradients = bucket.buffer();
    const at::Tensor sent = gradients.element_size() > 2 ? gradients.to(type) : gradients;
    const Work work = all_reduce_async(sent, ReduceOp::Avg, group);
    return [work, sent, gradients] {
      work.wait();
      if (!sent.is_same(gradients)) gradients.copy_(sent);
    };
  }
};

}  // namespace detail

}  // namespace ddp::libtorch
