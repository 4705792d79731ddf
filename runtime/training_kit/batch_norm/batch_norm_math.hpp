// SPDX-License-Identifier: BSD-3-Clause
// Arithmetic of batch normalisation for one channel. All of it is in double, whatever the elements are, since it is
// little work for each channel.
#pragma once

#include <cmath>
#include <cstddef>

namespace ddp::training::batch_norm {

// Count, mean and deviations of some values: enough to merge two sets without reading them again.
// Sums of squares would lose all digits where the mean is large compared with the spread; this
// does not. (T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm
// for computing sample variances", 1979.)
struct Moments {
  double count = 0;       // number of values
  double mean = 0;        // their mean
  double deviations = 0;  // sum of the squared distances from the mean
};

// Returns the moments of two sets together. An empty set changes nothing.
inline Moments merge(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  const double count = a.count + b.count;
  const double share = b.count / count;
  const double distance = b.mean - a.mean;
  return {count, a.mean + distance * share, a.deviations + b.deviations + distance * distance * a.count * share};
}

// Returns the number of doubles that a rank sends: a mean and the deviations of each channel, then
// the count, which is the same for all channels.
constexpr std::size_t told_by_rank(std::size_t channels) { return 2 * channels + 1; }

// Returns one channel's moments over all ranks, from what each of them has sent. It merges in the
// order of ranks, so that every rank gets the same bits.
inline Moments moments_of_ranks(const double* told, std::size_t ranks, std::size_t channels, std::size_t channel) {
  Moments all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double* of_rank = told + rank * told_by_rank(channels);
    all = merge(all, {of_rank[2 * channels], of_rank[channel], of_rank[channels + channel]});
  }
  return all;
}

// Returns the inverse of the standard deviation; epsilon keeps it finite.
inline double inverse_deviation(double variance, double epsilon) { return 1 / std::sqrt(variance + epsilon); }

// Returns a running mean after one more batch. Source: torch.nn.BatchNorm1d, momentum.
inline double moved(double running, double seen, double momentum) { return (1 - momentum) * running + momentum * seen; }

// Normalisation of one channel: y = (x - mean) * scale + shift.
struct Normalisation {
  double mean = 0;   // mean of the channel
  double scale = 1;  // inverse deviation times weight
  double shift = 0;  // bias

  // Normalises one value.
  double operator()(double x) const { return (x - mean) * scale + shift; }
};

// Gradient of one channel's input: dx = (dy - mean_dy - (x - mean) * slope) * scale. It is the
// effect of x itself on the loss, less its effect through the mean and the deviation. Both sums
// are over all ranks.
struct InputGradient {
  double mean = 0;     // mean of the channel
  double scale = 1;    // inverse deviation times weight
  double mean_dy = 0;  // mean of the output's gradients
  double slope = 0;    // slope of dy against x

  // Returns the gradient of one value.
  double operator()(double x, double dy) const { return (dy - mean_dy - (x - mean) * slope) * scale; }
};

// Returns the input's gradient from the sums over `count` values of dy, and of dy * (x - mean).
inline InputGradient input_gradient(double mean, double inverse_deviation, double weight, double count, double sum_dy,
                                    double sum_dy_distance) {
  return {mean, inverse_deviation * weight, sum_dy / count,
          sum_dy_distance * inverse_deviation * inverse_deviation / count};
}

}  // namespace ddp::training::batch_norm
