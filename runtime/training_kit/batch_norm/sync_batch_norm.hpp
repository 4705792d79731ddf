// SPDX-License-Identifier: BSD-3-Clause
// SyncBatchNorm's driver: statistics of a batch that is spread over the ranks of a group. Uses one
// all_gather in forward and one all_reduce in backward; allocates nothing after the first forward.
// All tensors remain the caller's. One thread at a time may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/c/training.h"
#include "ddp/process_group.hpp"
#include "runtime/training_kit/batch_norm/batch_norm.hpp"

namespace ddp::training {

class SyncBatchNorm {
 public:
  // The constructor and all methods throw ddp::Error: InvalidArgument, Mismatch if ranks
  // have different numbers of channels, or the error of a failed collective.
  SyncBatchNorm(ProcessGroup group, std::size_t channels, const ddp_sync_batch_norm_tensors& tensors,
                const ddp_sync_batch_norm_options& options);

  void set_tensors(const ddp_sync_batch_norm_tensors& tensors);
  void set_training(bool training) { training_ = training; }
  // Changes the running statistics only once the exchange has succeeded.
  void forward(const ddp_buffer& input, const ddp_buffer& output, std::size_t length);
  // Changes the gradients of weight and bias only once the exchange has succeeded.
  void backward(const ddp_buffer& input, const ddp_buffer& grad_output, const ddp_buffer& grad_input);

 private:
  // Whose statistics the last forward used. This decides what backward exchanges.
  enum class Statistics { None, OfAllRanks, OfThisRank, Running };

  BatchShape shape_of(const ddp_buffer& input, std::size_t length) const;
  static void check(const char* what, const ddp_buffer& buffer, const ddp_buffer& like);
  void compare_channels();
  void exchange_moments(const BatchShape& shape);
  void move_running_statistics();
  void take_running_statistics();
  void exchange_sums();
  double value(const void* tensor, std::size_t channel, double otherwise) const;
  void set(void* tensor, std::size_t channel, double value) const;

  ProcessGroup group_;
  std::size_t channels_;
  ddp_sync_batch_norm_tensors tensors_{};
  std::int32_t dtype_;  // type of the weights and statistics
  double epsilon_;
  double momentum_;
  bool cumulative_;
  bool channels_last_;
  std::int64_t own_count_ = 0;  // batches seen, if the caller keeps no num_batches_tracked
  bool training_ = true;
  bool channels_compared_ = false;  // compare_channels() has succeeded

  // Results of the last forward.
  Statistics statistics_ = Statistics::None;
  BatchShape shape_;
  double count_ = 0;  // values per channel behind the statistics
  std::vector<batch_norm::Moments> moments_;
  std::vector<double> inverse_deviation_;
  std::vector<batch_norm::Normalisation> normalisation_;

  // Memory that is reused.
  BatchNormPasses passes_;
  std::vector<double> sent_;      // this rank's moments, as the other ranks receive them
  std::vector<double> gathered_;  // the moments of all ranks
  std::vector<GradientSums> own_sums_;
  std::vector<GradientSums> sums_;
  std::vector<batch_norm::InputGradient> input_gradients_;
};

}  // namespace ddp::training
