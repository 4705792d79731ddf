// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which samples of a data set a rank trains on: the same indices in the same order as PyTorch's DistributedSampler,
/// bit for bit, up to 214,748,363 samples (torch/utils/data/distributed.py; torch.randperm on the CPU,
/// aten/src/ATen/native/TensorFactories.cpp).
///
///     ddp::DistributedSampler sampler(data.size(), session.world_size(), session.rank());
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);                       // another order in every epoch, the same on every rank
///       for (std::int64_t i : sampler.indices()) train_on(data[i]);
///     }
///
/// Every rank gets equally many samples: the list is filled up by repeating its beginning, or cut with drop_last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"

namespace ddp {

/// 0..length-1 in random order, as torch.randperm(length, generator=torch.Generator().manual_seed(seed)) for any length
/// below 214,748,364. From there on torch has another algorithm (a remainder of 32 random bits would favour small
/// indices); ours then draws 64 bits: as random, the same on every rank, but not torch's order.
inline std::vector<std::int64_t> random_permutation(std::size_t length, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed & 0xffffffffU));  // torch uses the low 32 bits too
  constexpr std::uint64_t kWide = 0xffffffffU / 20;                                 // where torch changes its algorithm
  std::vector<std::int64_t> permutation(length);
  std::iota(permutation.begin(), permutation.end(), std::int64_t{0});
  for (std::size_t i = 0; i + 1 < length; ++i) {
    std::uint64_t drawn = random();
    if (length >= kWide) drawn = drawn << 32 | random();
    std::swap(permutation[i], permutation[i + static_cast<std::size_t>(drawn % (length - i))]);
  }
  return permutation;
}

/// The samples of one rank, epoch by epoch. One thread at a time. PyTorch's torch.utils.data.DistributedSampler.
class DistributedSampler {
 public:
  /// length: of the data set, in samples. seed must be the same on every rank. drop_last: the list is cut rather than
  /// filled up. Throws Error with DDP_INVALID_ARGUMENT if rank is not one of world_size ranks.
  DistributedSampler(std::size_t length, int world_size, int rank, std::uint64_t seed = 0, bool shuffle = true,
                     bool drop_last = false)
      : length_(length), seed_(seed), shuffle_(shuffle), drop_last_(drop_last) {
    if (world_size < 1 || rank < 0 || rank >= world_size) {
      throw Error(DDP_INVALID_ARGUMENT, "DistributedSampler: there is no rank " + std::to_string(rank) + " among " +
                                            std::to_string(world_size));
    }
    world_size_ = static_cast<std::size_t>(world_size);
    rank_ = static_cast<std::size_t>(rank);
  }

  /// Before each epoch; part of the seed. Without it every epoch has the same order.
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  /// How many samples indices() gives, on every rank.
  std::size_t size() const { return drop_last_ ? length_ / world_size_ : (length_ + world_size_ - 1) / world_size_; }

  /// This rank's samples of this epoch.
  std::vector<std::int64_t> indices() const {
    std::vector<std::int64_t> all;
    if (shuffle_) {
      all = random_permutation(length_, seed_ + epoch_);
    } else {
      all.resize(length_);
      std::iota(all.begin(), all.end(), std::int64_t{0});
    }
    std::vector<std::int64_t> mine;
    mine.reserve(size());
    for (std::size_t k = 0; k < size(); ++k) mine.push_back(all[(rank_ + k * world_size_) % length_]);
    return mine;
  }

 private:
  std::size_t length_;
  std::size_t world_size_ = 1;
  std::size_t rank_ = 0;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  bool shuffle_;
  bool drop_last_;
};

}  // namespace ddp
