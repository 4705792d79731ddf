// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/batch_norm/sync_batch_norm.hpp"

#include <cmath>
#include <string>

#include "collectives/element_types.hpp"
#include "runtime/training_kit/checks.hpp"

namespace ddp::training {
namespace {

[[noreturn]] void refuse_norm(const std::string& why) { refuse("SyncBatchNorm: " + why); }

double chosen(const char* what, double given, double usual) {
  if (!(given >= 0) || !std::isfinite(given))
    refuse_norm(std::string(what) + " is " + std::to_string(given) + "; it cannot be negative");
  return given > 0 ? given : usual;
}

std::string values_per_channel(double count) {
  return count == 1 ? "1 value per channel" : std::to_string(static_cast<long>(count)) + " values per channel";
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(ProcessGroup group, std::size_t channels, const ddp_sync_batch_norm_tensors& tensors,
                             const ddp_sync_batch_norm_options& options)
    : group_(group),
      channels_(channels),
      dtype_(options.dtype),
      epsilon_(chosen("eps", options.eps, 1e-5)),
      momentum_(chosen("momentum", options.momentum, 0.1)),
      cumulative_(options.cumulative_average != 0),
      channels_last_(options.channels_last != 0),
      moments_(channels),
      inverse_deviation_(channels),
      normalisation_(channels),
      passes_(channels),
      sent_(batch_norm::told_by_rank(channels)),
      gathered_(sent_.size() * static_cast<std::size_t>(group.size())),
      own_sums_(channels),
      sums_(channels),
      input_gradients_(channels) {
  if (channels == 0) refuse_norm("there are no channels");
  if (dtype_ != DDP_FLOAT32 && dtype_ != DDP_FLOAT64) refuse_norm("weights and statistics are float32 or float64");
  set_tensors(tensors);
}

void SyncBatchNorm::set_tensors(const ddp_sync_batch_norm_tensors& tensors) {
  if ((tensors.running_mean == nullptr) != (tensors.running_var == nullptr)) {
    refuse_norm("running_mean and running_var are given both, or neither");
  }
  tensors_ = tensors;
}

double SyncBatchNorm::value(const void* tensor, std::size_t channel, double otherwise) const {
  if (tensor == nullptr) return otherwise;
  return dtype_ == DDP_FLOAT32 ? static_cast<double>(static_cast<const float*>(tensor)[channel])
                               : static_cast<const double*>(tensor)[channel];
}

void SyncBatchNorm::set(void* tensor, std::size_t channel, double value) const {
  if (tensor == nullptr) return;
  if (dtype_ == DDP_FLOAT32) {
    static_cast<float*>(tensor)[channel] = static_cast<float>(value);
  } else {
    static_cast<double*>(tensor)[channel] = value;
  }
}

BatchShape SyncBatchNorm::shape_of(const ddp_buffer& input, std::size_t length) const {
  check_buffer("SyncBatchNorm's input", input);
  const bool narrow = collectives::is_16_bit_float(input.dtype) && dtype_ == DDP_FLOAT32;
  if (input.dtype != dtype_ && !narrow) {
    refuse_norm(std::string("the input is ") + dtype_name(input.dtype) + ", the weights and statistics " +
                dtype_name(dtype_) + ": give both the same type, or a 16-bit input to float32 weights");
  }
  const std::size_t row = channels_ * length;
  if (row == 0 || input.count % row != 0) {
    refuse_norm("an input of " + std::to_string(input.count) + " elements is not a whole number of rows of " +
                std::to_string(channels_) + " channels x " + std::to_string(length));
  }
  return {input.count / row, channels_, length, channels_last_};
}

void SyncBatchNorm::check(const char* what, const ddp_buffer& buffer, const ddp_buffer& like) {
  check_buffer(what, buffer);
  if (buffer.count == like.count && buffer.dtype == like.dtype) return;
  refuse(std::string(what) + " is " + std::to_string(buffer.count) + " " + dtype_name(buffer.dtype) + ", its input " +
         std::to_string(like.count) + " " + dtype_name(like.dtype) + ": they must be alike");
}

void SyncBatchNorm::forward(const ddp_buffer& input, const ddp_buffer& output, std::size_t length) {
  const BatchShape shape = shape_of(input, length);
  check("SyncBatchNorm's output", output, input);
  // As in PyTorch, evaluation without running statistics also normalises by the batch, but by this
  // rank's batch alone.
  const bool has_running = tensors_.running_mean != nullptr;
  statistics_ = Statistics::None;
  if (training_) {
    passes_.moments(input.dtype, input.data, shape, moments_);
    exchange_moments(shape);
    if (has_running) move_running_statistics();
  } else if (has_running) {
    take_running_statistics();
  } else {
    if (shape.per_channel() == 1) {
      refuse_norm("this rank has 1 value per channel, and there are no running statistics: give it more rows");
    }
    passes_.moments(input.dtype, input.data, shape, moments_);
    count_ = static_cast<double>(shape.per_channel());
  }
  for (std::size_t c = 0; c < channels_; ++c) {
    const double variance = count_ > 0 ? moments_[c].deviations / count_ : 0;
    inverse_deviation_[c] = batch_norm::inverse_deviation(variance, epsilon_);
    normalisation_[c] = {moments_[c].mean, inverse_deviation_[c] * value(tensors_.weight, c, 1),
                         value(tensors_.bias, c, 0)};
  }
  BatchNormPasses::normalise(input.dtype, input.data, output.data, shape, normalisation_);
  shape_ = shape;
  statistics_ = training_ ? Statistics::OfAllRanks : has_running ? Statistics::Running : Statistics::OfThisRank;
}

// Compares the number of channels once, before different sizes could break an exchange. If they
// differ every rank throws, and the group remains usable.
void SyncBatchNorm::compare_channels() {
  if (channels_compared_) return;
  const auto mine = static_cast<std::int64_t>(channels_);
  std::vector<std::int64_t> all(static_cast<std::size_t>(group_.size()));
  group_.all_gather(mine, all);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(Status::Mismatch, "SyncBatchNorm has " + std::to_string(all[0]) + " channels on rank 0 but " +
                                      std::to_string(all[rank]) + " on rank " + std::to_string(rank) +
                                      ": every rank must build the same model");
  }
  channels_compared_ = true;
}

// Also a rank without rows takes part, because the others wait for it. Ranks send sums of squared
// deviations, which lose nothing; PyTorch's send inverse standard deviations and recover the
// variance by subtracting epsilon.
void SyncBatchNorm::exchange_moments(const BatchShape& shape) {
  compare_channels();
  for (std::size_t c = 0; c < channels_; ++c) {
    sent_[c] = moments_[c].mean;
    sent_[channels_ + c] = moments_[c].deviations;
  }
  sent_.back() = static_cast<double>(shape.per_channel());
  group_.all_gather(sent_, gathered_);
  const auto ranks = static_cast<std::size_t>(group_.size());
  for (std::size_t c = 0; c < channels_; ++c) {
    moments_[c] = batch_norm::moments_of_ranks(gathered_.data(), ranks, channels_, c);
  }
  count_ = moments_[0].count;
  if (count_ >= 2) return;
  // Every rank has the same count, so every rank throws, and the group remains usable.
  refuse_norm("all " + std::to_string(ranks) + " ranks of " + group_.name() + " together have " +
              values_per_channel(count_) + ": training needs at least 2; give more rows, or turn training off");
}

void SyncBatchNorm::move_running_statistics() {
  std::int64_t& batches = tensors_.num_batches_tracked != nullptr ? *tensors_.num_batches_tracked : own_count_;
  ++batches;
  const double momentum = cumulative_ ? 1 / static_cast<double>(batches) : momentum_;
  for (std::size_t c = 0; c < channels_; ++c) {
    const double unbiased = moments_[c].deviations / (count_ - 1);
    set(tensors_.running_mean, c, batch_norm::moved(value(tensors_.running_mean, c, 0), moments_[c].mean, momentum));
    set(tensors_.running_var, c, batch_norm::moved(value(tensors_.running_var, c, 1), unbiased, momentum));
  }
}

void SyncBatchNorm::take_running_statistics() {
  count_ = 1;  // count 1 makes `deviations` equal to the variance
  for (std::size_t c = 0; c < channels_; ++c) {
    moments_[c] = {count_, value(tensors_.running_mean, c, 0), value(tensors_.running_var, c, 1)};
  }
}

void SyncBatchNorm::backward(const ddp_buffer& input, const ddp_buffer& grad_output, const ddp_buffer& grad_input) {
  if (statistics_ == Statistics::None) refuse_norm("backward without a forward that succeeded before it");
  const BatchShape shape = shape_of(input, shape_.length);
  if (shape.rows != shape_.rows) {
    refuse_norm("backward's input has " + std::to_string(shape.rows) + " rows, the last forward's had " +
                std::to_string(shape_.rows));
  }
  check("SyncBatchNorm's output gradient", grad_output, input);
  check("SyncBatchNorm's input gradient", grad_input, input);
  // The sums over all ranks are needed if forward used the statistics of all ranks.
  BatchNormPasses::gradient_sums(input.dtype, input.data, grad_output.data, shape, normalisation_, own_sums_);
  sums_ = own_sums_;
  if (statistics_ == Statistics::OfAllRanks) exchange_sums();
  for (std::size_t c = 0; c < channels_; ++c) {
    // Adds this rank's share only, as autograd does; DistributedDataParallel averages the gradients
    // of parameters later.
    set(tensors_.weight_grad, c, value(tensors_.weight_grad, c, 0) + own_sums_[c].dy_distance * inverse_deviation_[c]);
    set(tensors_.bias_grad, c, value(tensors_.bias_grad, c, 0) + own_sums_[c].dy);
    if (statistics_ == Statistics::Running) sums_[c] = {};  // running statistics do not depend on the input
    input_gradients_[c] =
        batch_norm::input_gradient(moments_[c].mean, inverse_deviation_[c], value(tensors_.weight, c, 1),
                                   count_ > 0 ? count_ : 1, sums_[c].dy, sums_[c].dy_distance);
  }
  BatchNormPasses::input_gradients(input.dtype, input.data, grad_output.data, grad_input.data, shape, input_gradients_);
}

void SyncBatchNorm::exchange_sums() {
  static_assert(sizeof(GradientSums) == 2 * sizeof(double));
  group_.all_reduce({sums_.data(), 2 * channels_, DType::Float64});
}

}  // namespace ddp::training
