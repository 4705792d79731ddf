// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// DistributedSampler: which samples of a data set a rank trains on. They are the same indices in
/// the same order as PyTorch's DistributedSampler gives, bit for bit
/// (torch/utils/data/distributed.py; torch.randperm on the CPU,
/// aten/src/ATen/native/TensorFactories.cpp). It also says where to go on after an interruption, on
/// any number of ranks.
///
///     ddp::DistributedSampler sampler(data.size());   // of the session's ranks; or (data.size(), ranks, rank)
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);                       // another order in every epoch, the same on every rank
///       for (std::int64_t i : sampler.indices()) train_on(data[i]);
///     }
///
/// Every rank gets the same number of samples: the list is filled up by repeating its beginning, or
/// cut with drop_last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <locale>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/session.hpp"

namespace ddp {

/// Returns 0..length-1 in random order, as torch.randperm(length,
/// generator=torch.Generator().manual_seed(seed)) does.
inline std::vector<std::int64_t> random_permutation(std::size_t length, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed & 0xffffffffU));  // torch uses the low 32 bits too
  std::vector<std::int64_t> permutation(length);
  std::iota(permutation.begin(), permutation.end(), std::int64_t{0});
  // From here on a remainder of 32 random bits would favour small indices; torch then draws 64, and shuffles from the
  // other end.
  constexpr std::size_t kWide = 0xffffffffU / 20;
  if (length < kWide) {
    for (std::size_t i = 0; i + 1 < length; ++i) {
      std::swap(permutation[i], permutation[i + static_cast<std::size_t>(random()) % (length - i)]);
    }
    return permutation;
  }
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t high = random();
    const std::uint64_t drawn = high << 32 | random();
    std::swap(permutation[i], permutation[static_cast<std::size_t>(drawn % (i + 1))]);
  }
  return permutation;
}

/// How far all ranks together have come in an epoch. It does not depend on the number of ranks, so
/// any number may go on from it. It has plain numbers, the same on every rank; to_string() makes
/// text of them for a checkpoint's metadata.
struct SamplerState {
  std::uint64_t epoch = 0;     ///< as given to set_epoch()
  std::uint64_t position = 0;  ///< number of samples of the epoch's order that were used: the first `position`
  std::uint64_t length = 0;    ///< length of the data set; with seed and shuffle it determines the order
  std::uint64_t seed = 0;      ///< the sampler's
  bool shuffle = true;         ///< the sampler's

  /// Returns whether all fields are equal.
  bool operator==(const SamplerState& other) const {
    return epoch == other.epoch && position == other.position && length == other.length && seed == other.seed &&
           shuffle == other.shuffle;
  }
};

/// Returns a state as one line, such as "epoch 3, position 4096 of 50000, seed 7, shuffled".
inline std::string to_string(const SamplerState& state) {
  return "epoch " + std::to_string(state.epoch) + ", position " + std::to_string(state.position) + " of " +
         std::to_string(state.length) + ", seed " + std::to_string(state.seed) +
         (state.shuffle ? ", shuffled" : ", in order");
}

/// Returns the state that to_string() wrote. Throws Error with Status::Corrupt for any other text.
inline SamplerState sampler_state(const std::string& text) {
  SamplerState state;
  std::istringstream in(text);
  in.imbue(std::locale::classic());  // not the program's, which may put commas into numbers
  std::string word;
  const auto number = [&](const char* before, std::uint64_t& value) {
    return in >> word && word == before && in >> value;
  };
  const auto comma = [&] { return in.get() == ','; };
  const bool numbers = number("epoch", state.epoch) && comma() && number("position", state.position) &&
                       number("of", state.length) && comma() && number("seed", state.seed) && comma();
  state.shuffle = text.size() >= 8 && text.compare(text.size() - 8, 8, "shuffled") == 0;
  if (!numbers || to_string(state) != text) {
    throw Error(Status::Corrupt, "\"" + text + "\" is no sampler's state as to_string() writes it");
  }
  return state;
}

/// The samples of one rank, epoch by epoch. One thread at a time. Source:
/// torch.utils.data.DistributedSampler.
class DistributedSampler {
 public:
  /// Makes a sampler for a data set of `length` samples. seed must be the same on every rank; a
  /// negative seed of Python is its two's complement here, as in torch. With drop_last the list is
  /// cut rather than filled up. Throws Error with Status::InvalidArgument if rank is not one of
  /// world_size ranks.
  DistributedSampler(std::size_t length, int world_size, int rank, std::uint64_t seed = 0, bool shuffle = true,
                     bool drop_last = false)
      : length_(length), seed_(seed), shuffle_(shuffle), drop_last_(drop_last) {
    if (world_size < 1 || rank < 0 || rank >= world_size) {
      throw Error(Status::InvalidArgument, "DistributedSampler: there is no rank " + std::to_string(rank) + " among " +
                                               std::to_string(world_size));
    }
    world_size_ = static_cast<std::size_t>(world_size);
    rank_ = static_cast<std::size_t>(rank);
  }

  /// Makes a sampler for this process's rank among those of the default group, which shuffles with seed 0. Throws Error
  /// with Status::InvalidArgument if there is no default group.
  explicit DistributedSampler(std::size_t length) : DistributedSampler(length, get_world_size(), get_rank()) {}

  /// Sets the epoch, which is part of the seed; call it before each epoch. Without it every epoch has
  /// the same order. An epoch other than the current one starts at its beginning; the one that
  /// load_state() has set goes on where it was.
  void set_epoch(std::uint64_t epoch) {
    if (epoch != epoch_) start_ = 0;
    epoch_ = epoch;
  }

  /// Returns the number of samples that indices() gives, on every rank.
  std::size_t size() const {
    const std::size_t left = length_ - start_;
    return left / world_size_ + (!drop_last_ && left % world_size_ != 0 ? 1 : 0);
  }

  /// Returns this rank's samples of this epoch; after load_state(), of the rest of it.
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
    for (std::size_t k = 0; k < size(); ++k) mine.push_back(all[(start_ + rank_ + k * world_size_) % length_]);
    return mine;
  }

  /// Returns the state after every rank has trained on the first `consumed` of its indices(). Do not
  /// count samples that a loader has fetched ahead: they would be missing after a restart.
  SamplerState state(std::size_t consumed = 0) const {
    if (consumed > size()) {
      throw Error(Status::InvalidArgument, "DistributedSampler: " + std::to_string(consumed) +
                                               " samples cannot be used up, this rank has " + std::to_string(size()));
    }
    // The last samples of a list that was filled up are repeated ones: there is no position behind the end.
    const std::size_t left = length_ - start_;
    const std::size_t used = consumed < size() || drop_last_ ? consumed * world_size_ : left;
    return {epoch_, start_ + used, length_, seed_, shuffle_};
  }

  /// Goes on from a state, on this sampler's number of ranks. No sample of the epoch is missing and
  /// none comes twice, except those at its end that fill up the list (or that drop_last cuts). On
  /// as many ranks as before, each gets what it would have got without the interruption. Throws
  /// Error with Status::Mismatch, and changes nothing, if the state belongs to another order:
  /// another length of the data set, another seed or shuffle.
  void load_state(const SamplerState& state) {
    const SamplerState here = {state.epoch, state.position, length_, seed_, shuffle_};
    if (!(state == here) || state.position > state.length) {
      throw Error(Status::Mismatch, "DistributedSampler: cannot go on from \"" + to_string(state) +
                                        "\", this sampler's order is \"" +
                                        to_string({state.epoch, 0, length_, seed_, shuffle_}) +
                                        "\": make it with the same data set, seed and shuffle");
    }
    epoch_ = state.epoch;
    start_ = static_cast<std::size_t>(state.position);
  }

 private:
  std::size_t length_;
  std::size_t world_size_ = 1;
  std::size_t rank_ = 0;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  std::size_t start_ = 0;  // samples of this epoch's order that were used up before
  bool shuffle_;
  bool drop_last_;
};

}  // namespace ddp
