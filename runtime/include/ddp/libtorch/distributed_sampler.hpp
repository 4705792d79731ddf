// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedSampler for data loaders of libtorch: which samples of a data set a rank trains on, in PyTorch's order.
///
///     ddp::libtorch::DistributedSampler sampler(*data.size());
///     auto loader = torch::data::make_data_loader(data, sampler, batch_size);
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);                          // the loader's sampler follows
///       for (auto& batch : *loader) ...
///     }
#pragma once

#include <torch/data/samplers/base.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/sampler.hpp"

namespace ddp::libtorch {

namespace detail {

// libtorch's optional type for a size: std::optional, or in older releases a class of its own.
template <template <typename> class Optional, typename T>
Optional<std::size_t> optional_size(const Optional<T>& request);
using NextSamples = decltype(std::declval<torch::data::samplers::Sampler<>&>().next(0));
using OptionalSize = decltype(optional_size(std::declval<NextSamples>()));

}  // namespace detail

/// The samples of one rank, epoch by epoch: ddp::DistributedSampler as a sampler of torch::data. It
/// gives the indices that Python's DistributedSampler gives, bit for bit. Copies share their state,
/// so that set_epoch() reaches the copy that a data loader has. One thread at a time. Source:
/// torch.utils.data.DistributedSampler.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Makes a sampler for a data set of `size` samples; the arguments are Python's. Throws Error with
  /// Status::InvalidArgument if rank is not one of num_replicas ranks.
  DistributedSampler(std::size_t size, int num_replicas, int rank, bool shuffle = true, std::uint64_t seed = 0,
                     bool drop_last = false)
      : order_(std::make_shared<Order>(
            Order{size, ddp::DistributedSampler(size, num_replicas, rank, seed, shuffle, drop_last), false, {}, 0})) {}
  /// Makes a sampler for this process's rank among those of the default group.
  explicit DistributedSampler(std::size_t size) : DistributedSampler(size, get_world_size(), get_rank()) {}

  /// Sets the epoch, which is part of the seed; call it before each epoch. It holds from the next reset() on, which a
  /// data loader's begin() calls.
  void set_epoch(std::uint64_t epoch) { order_->sampler.set_epoch(epoch); }
  /// Returns the number of samples that each rank has in an epoch, or in the rest of it after load_state().
  std::size_t size() const { return order_->sampler.size(); }

  /// Begins an epoch. A data set cannot change its size: Error with Status::InvalidArgument.
  void reset(detail::OptionalSize new_size = {}) override {
    if (new_size && *new_size != order_->size) {
      throw Error(Status::InvalidArgument, "DistributedSampler: it was made for " + std::to_string(order_->size) +
                                               " samples, not for " + std::to_string(*new_size) + ": make another one");
    }
    order_->indices = order_->sampler.indices();
    order_->next = 0;
    order_->has_begun = true;
  }
  /// Returns the next indices of the epoch, at most batch_size of them; nothing at its end.
  detail::NextSamples next(std::size_t batch_size) override {
    if (!order_->has_begun) reset();
    const std::size_t left = order_->indices.size() - order_->next;
    if (left == 0) return {};
    const auto begin = order_->indices.begin() + static_cast<std::ptrdiff_t>(order_->next);
    const std::size_t count = std::min(batch_size, left);
    order_->next += count;
    return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
  }

  /// Returns the state after every rank has trained on the first `consumed` of this epoch's samples, to go on from on
  /// any number of ranks. Samples that a loader has fetched ahead do not count.
  SamplerState state(std::size_t consumed = 0) const { return order_->sampler.state(consumed); }
  /// Goes on from a state, from the next reset() on; as ddp::DistributedSampler::load_state() does.
  void load_state(const SamplerState& state) { order_->sampler.load_state(state); }

  /// Writes the state after the samples that next() has given.
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("ddp_sampler", c10::IValue(to_string(state(order_->next))));
  }
  /// Goes on from a state that save() wrote, from the next reset() on.
  void load(torch::serialize::InputArchive& archive) override {
    c10::IValue state;
    archive.read("ddp_sampler", state);
    load_state(sampler_state(state.toStringRef()));
    order_->has_begun = false;
  }

 private:
  struct Order {
    std::size_t size;
    ddp::DistributedSampler sampler;
    bool has_begun;
    std::vector<std::int64_t> indices;  // this rank's in this epoch
    std::size_t next;                   // how many of them were given
  };

  std::shared_ptr<Order> order_;
};

}  // namespace ddp::libtorch
