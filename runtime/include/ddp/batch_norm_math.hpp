// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What batch normalisation computes for one channel: the same functions on the host, where libddp calls them, and in
/// the kernels of ddp/sync_batch_norm.cuh. All in double, whatever the elements are: it is little work for a channel.
#pragma once

#include <cmath>
#include <cstddef>

#if defined(__CUDACC__)
/// A function that kernels may call too.
#define DDP_HOST_DEVICE __host__ __device__
#else
/// A function that kernels may call too.
#define DDP_HOST_DEVICE
#endif

namespace ddp::batch_norm {

/// What is known of some values: enough to put two lots of them together without looking at them again. Sums of squares
/// would lose everything where the mean is large beside the spread; this does not. (T. F. Chan, G. H. Golub,
/// R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.)
struct Moments {
  double count = 0;       ///< how many
  double mean = 0;        ///< their mean
  double deviations = 0;  ///< sum of the squared distances from it
};

/// Of both lots together. A lot of none changes nothing.
DDP_HOST_DEVICE inline Moments merge(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  const double count = a.count + b.count;
  const double share = b.count / count;
  const double distance = b.mean - a.mean;
  return {count, a.mean + distance * share, a.deviations + b.deviations + distance * distance * a.count * share};
}

/// How many doubles a rank tells the others: a mean and the deviations of each channel, then the count, which is the
/// same for all channels.
DDP_HOST_DEVICE constexpr std::size_t told_by_rank(std::size_t channels) { return 2 * channels + 1; }

/// One channel's moments over all ranks, from what each of them told, one after the other. In the order of ranks, so
/// that every rank comes to the same bits.
DDP_HOST_DEVICE inline Moments moments_of_ranks(const double* told, std::size_t ranks, std::size_t channels,
                                                std::size_t channel) {
  Moments all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double* of_rank = told + rank * told_by_rank(channels);
    all = merge(all, {of_rank[2 * channels], of_rank[channel], of_rank[channels + channel]});
  }
  return all;
}

/// What the values are divided by, inverted; epsilon keeps it finite.
DDP_HOST_DEVICE inline double inverse_deviation(double variance, double epsilon) {
  return 1 / std::sqrt(variance + epsilon);
}

/// A running mean after it has seen one more batch. Source: torch.nn.BatchNorm1d, momentum.
DDP_HOST_DEVICE inline double moved(double running, double seen, double momentum) {
  return (1 - momentum) * running + momentum * seen;
}

/// y = (x - mean) * scale + shift.
struct Normalisation {
  double mean = 0;   ///< of the channel
  double scale = 1;  ///< its inverse deviation times its weight
  double shift = 0;  ///< its bias

  /// One value.
  DDP_HOST_DEVICE double operator()(double x) const { return (x - mean) * scale + shift; }
};

/// dx = (dy - mean_dy - (x - mean) * slope) * scale: what the loss loses by x itself, less what it loses by x moving
/// the mean and the deviation. Both sums are over all ranks.
struct InputGradient {
  double mean = 0;     ///< of the channel
  double scale = 1;    ///< its inverse deviation times its weight
  double mean_dy = 0;  ///< of the output's gradients
  double slope = 0;    ///< of dy against x

  /// One value.
  DDP_HOST_DEVICE double operator()(double x, double dy) const { return (dy - mean_dy - (x - mean) * slope) * scale; }
};

/// From the sums over `count` values of dy, and of dy * (x - mean).
DDP_HOST_DEVICE inline InputGradient input_gradient(double mean, double inverse_deviation, double weight, double count,
                                                    double sum_dy, double sum_dy_distance) {
  return {mean, inverse_deviation * weight, sum_dy / count,
          sum_dy_distance * inverse_deviation * inverse_deviation / count};
}

}  // namespace ddp::batch_norm
