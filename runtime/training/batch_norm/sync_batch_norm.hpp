// SPDX-License-Identifier: BSD-3-Clause
// SyncBatchNorm's driver: the statistics of a batch that is spread over the ranks of a group. One all_gather forward,
// one all_reduce backward; nothing is allocated after the first forward. What it is given stays the caller's.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/group/process_group.hpp"
#include "runtime/training/batch_norm/batch_norm.hpp"

namespace ddp::runtime {

class SyncBatchNorm {
 public:
  // All throw rendezvous::Error: InvalidArgument, Mismatch if ranks have other numbers of channels, or a failed
  // collective's.
  SyncBatchNorm(ProcessGroup& group, std::size_t channels, const ddp_sync_batch_norm_tensors& tensors,
                const ddp_sync_batch_norm_options& options);

  void set_training(bool training) { training_ = training; }
  // Running statistics change only once the exchange has succeeded.
  void forward(const ddp_buffer& input, const ddp_buffer& output, std::size_t length);
  // Gradients of weight and bias likewise.
  void backward(const ddp_buffer& input, const ddp_buffer& grad_output, const ddp_buffer& grad_input);

 private:
  // Whose statistics the last forward used. What backward has to exchange follows from it.
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

  ProcessGroup& group_;
  std::size_t channels_;
  ddp_sync_batch_norm_tensors tensors_;
  std::int32_t dtype_;  // of the tensors
  double epsilon_;
  double momentum_;
  bool cumulative_;
  bool channels_last_;
  std::int64_t own_count_ = 0;  // where the caller keeps no num_batches_tracked
  bool training_ = true;
  bool channels_compared_ = false;  // with the other ranks'

  // Of the last forward.
  Statistics statistics_ = Statistics::None;
  BatchShape shape_;
  double count_ = 0;  // values a channel that the statistics are of
  std::vector<batch_norm::Moments> moments_;
  std::vector<double> inverse_deviation_;
  std::vector<batch_norm::Normalisation> normalisation_;

  // Reused.
  BatchNormPasses passes_;
  std::vector<double> told_;      // this rank's moments as others get them
  std::vector<double> gathered_;  // everyone's
  std::vector<GradientSums> own_sums_;
  std::vector<GradientSums> sums_;
  std::vector<batch_norm::InputGradient> input_gradients_;
};

}  // namespace ddp::runtime
