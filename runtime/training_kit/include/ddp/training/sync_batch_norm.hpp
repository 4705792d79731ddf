// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SyncBatchNorm: batch normalisation by the statistics of all ranks' rows, for the memory of the CPU.
///
///     std::vector<float> weight(channels, 1), bias(channels), mean(channels), var(channels, 1);
///     ddp::BatchNormTensors<float> tensors;
///     tensors.weight = weight.data();  // and so on
///     ddp::SyncBatchNorm<float> norm(session.world(), channels, tensors);
///     norm.forward(x, y, height * width);
///     norm.backward(x, grad_y, grad_x);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "ddp/buffer.hpp"
#include "ddp/c/training.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

/// Tensors of a batch normalisation, with an element for each channel. It never owns them. T is
/// float or double.
template <typename T>
struct BatchNormTensors {
  T* weight = nullptr;                          ///< null: 1
  T* bias = nullptr;                            ///< null: 0
  T* weight_grad = nullptr;                     ///< backward adds to it; null: not computed
  T* bias_grad = nullptr;                       ///< backward adds to it; null: not computed
  T* running_mean = nullptr;                    ///< starts as 0; null, and running_var too: not tracked
  T* running_var = nullptr;                     ///< starts as 1
  std::int64_t* num_batches_tracked = nullptr;  ///< one number, on the host; null: counted inside
};

/// How a batch normalisation computes, with PyTorch's defaults.
struct BatchNormOptions {
  double eps = 1e-5;                ///< added to the variance, above 0
  double momentum = 0.1;            ///< weight of a new batch in the running statistics, above 0
  bool cumulative_average = false;  ///< whether running statistics are the mean over all batches; torch's momentum=None
  bool channels_last = false;       ///< whether elements lie as rows x length x channels, not rows x channels x length
};

namespace detail {
struct SyncBatchNormDeleter {
  void operator()(ddp_sync_batch_norm* norm) const { ddp_sync_batch_norm_destroy(norm); }
};
}  // namespace detail

/// Batch normalisation over the rows of all ranks of a group. One thread at a time, the group's
/// deadline and errors. Destroy it before its session. More at ddp_sync_batch_norm_create().
/// Source: torch.nn.SyncBatchNorm.
template <typename T>
class SyncBatchNorm {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "weights and statistics are float or double");

 public:
  /// Makes a batch normalisation, with the same number of channels on every rank. The tensors' memory
  /// must stay, or set_tensors() names other memory.
  SyncBatchNorm(const ProcessGroup& group, std::size_t channels, const BatchNormTensors<T>& tensors = {},
                const BatchNormOptions& options = {}) {
    // For ddp.h 0 is the default.
    if (options.eps == 0 || options.momentum == 0) {
      throw Error(Status::InvalidArgument, "SyncBatchNorm: eps and momentum must be above 0");
    }
    const ddp_sync_batch_norm_tensors c_tensors = c(tensors);
    const ddp_sync_batch_norm_options c_options = {sizeof(ddp_sync_batch_norm_options),
                                                   static_cast<std::int32_t>(dtype_of<T>()),
                                                   options.cumulative_average ? 1 : 0,
                                                   options.channels_last ? 1 : 0,
                                                   options.eps,
                                                   options.momentum};
    ddp_sync_batch_norm* norm = nullptr;
    detail::check(ddp_sync_batch_norm_create(group.c(), channels, &c_tensors, &c_options, &norm));
    norm_.reset(norm);
  }

  /// Sets where the tensors are from now on, all of them, if some have moved: gradients that
  /// DistributedDataParallel::gradient() has given move once with gradient_as_bucket_view.
  void set_tensors(const BatchNormTensors<T>& tensors) {
    const ddp_sync_batch_norm_tensors c_tensors = c(tensors);
    detail::check(ddp_sync_batch_norm_set_tensors(norm_.get(), &c_tensors));
  }
  /// Normalises by the batch's statistics from now on, as at first; they update the running ones.
  void train() { detail::check(ddp_sync_batch_norm_set_training(norm_.get(), 1)); }
  /// Normalises by the running statistics from now on, without any exchange.
  void eval() { detail::check(ddp_sync_batch_norm_set_training(norm_.get(), 0)); }
  /// Normalises a batch. length is the number of values for each row and channel, 1 for a batch of
  /// rows x channels. Collective in training. More at ddp_sync_batch_norm_forward().
  void forward(Buffer input, Buffer output, std::size_t length = 1) {
    detail::check(ddp_sync_batch_norm_forward(norm_.get(), input.c(), output.c(), length));
  }
  /// Computes the gradients of the last forward(), whose input is given again. Collective after a
  /// forward in training. More at ddp_sync_batch_norm_backward().
  void backward(Buffer input, Buffer grad_output, Buffer grad_input) {
    detail::check(ddp_sync_batch_norm_backward(norm_.get(), input.c(), grad_output.c(), grad_input.c()));
  }

 private:
  static ddp_sync_batch_norm_tensors c(const BatchNormTensors<T>& tensors) {
    return {tensors.weight,       tensors.bias,        tensors.weight_grad,        tensors.bias_grad,
            tensors.running_mean, tensors.running_var, tensors.num_batches_tracked};
  }

  std::unique_ptr<ddp_sync_batch_norm, detail::SyncBatchNormDeleter> norm_;
};

}  // namespace ddp
