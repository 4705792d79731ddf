// SPDX-License-Identifier: BSD-3-Clause
// The mathematics of one channel, and the passes over a batch.
#include "runtime/training_kit/batch_norm/batch_norm_math.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "ddp/c/base.h"
#include "runtime/training_kit/batch_norm/batch_norm.hpp"

using namespace ddp::training::batch_norm;
using ddp::training::BatchNormPasses;
using ddp::training::BatchShape;

namespace {

// Computes the moments by their definition.
Moments plain(const std::vector<double>& values) {
  Moments m;
  m.count = static_cast<double>(values.size());
  for (const double x : values) m.mean += x / m.count;
  for (const double x : values) m.deviations += (x - m.mean) * (x - m.mean);
  return m;
}

void check_same(const Moments& got, const Moments& want) {
  CHECK(got.count == want.count);
  CHECK(got.mean == Approx(want.mean).epsilon(1e-12));
  CHECK(got.deviations == Approx(want.deviations).epsilon(1e-9).margin(1e-12));
}

}  // namespace

TEST_CASE("batch norm math: merging two sets of values gives the moments of all values", "[runtime][unit]") {
  const std::vector<double> all = {3, -1, 4, 1, -5, 9, 2.5};
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    const auto border = all.begin() + static_cast<std::ptrdiff_t>(cut);
    check_same(merge(plain({all.begin(), border}), plain({border, all.end()})), plain(all));
  }
  CHECK(merge({}, {}).count == 0);
}

TEST_CASE("batch norm math: a mean far from zero does not harm the variance", "[runtime][unit]") {
  const Moments both = merge({2, 1e9 + 1, 2}, {2, 1e9 + 3, 2});  // 1e9 plus 0 and 2, and 1e9 plus 2 and 4
  CHECK(both.mean == 1e9 + 2);
  CHECK(both.deviations == 8);
}

TEST_CASE("batch norm math: ranks' moments are merged by channel, and a rank without rows has no weight",
          "[runtime][unit]") {
  CHECK(told_by_rank(2) == 5);
  const std::vector<double> told = {1, 10, 2, 8, 4, /**/ 0, 0, 0, 0, 0, /**/ 7, 20, 0, 6, 2};
  check_same(moments_of_ranks(told.data(), 3, 2, 0), merge({4, 1, 2}, {2, 7, 0}));
  check_same(moments_of_ranks(told.data(), 3, 2, 1), merge({4, 10, 8}, {2, 20, 6}));
}

TEST_CASE("batch norm math: the input's gradient is the slope of the loss", "[runtime][unit]") {
  const std::vector<double> x = {0.5, -1, 2, 4};
  const std::vector<double> dy = {1, -0.5, 0.25, 2};
  const double weight = 1.5;
  const auto loss = [&](const std::vector<double>& at) {
    const Moments m = plain(at);
    const double scale = inverse_deviation(m.deviations / m.count, 1e-3) * weight;
    double sum = 0;
    for (std::size_t i = 0; i < at.size(); ++i) sum += dy[i] * Normalisation{m.mean, scale, 0.25}(at[i]);
    return sum;
  };
  const Moments m = plain(x);
  double sum_dy = 0;
  double sum_dy_distance = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum_dy += dy[i];
    sum_dy_distance += dy[i] * (x[i] - m.mean);
  }
  const InputGradient gradient =
      input_gradient(m.mean, inverse_deviation(m.deviations / 4, 1e-3), weight, 4, sum_dy, sum_dy_distance);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> above = x;
    std::vector<double> below = x;
    above[i] += 1e-6;
    below[i] -= 1e-6;
    CHECK(gradient(x[i], dy[i]) == Approx((loss(above) - loss(below)) / 2e-6).epsilon(1e-6));
  }
}

TEST_CASE("batch norm passes: moments are those of each channel's values, for any shape", "[runtime][unit]") {
  const BatchShape shape = GENERATE(
      BatchShape{1, 1, 1, false}, BatchShape{7, 3, 1, false}, BatchShape{2, 2, 9001, false}, BatchShape{3, 2, 9, false},
      BatchShape{700, 2, 3, true}, BatchShape{5, 3000, 1, true}, BatchShape{0, 4, 5, false}, BatchShape{0, 4, 5, true});
  std::mt19937 dice(3);
  std::normal_distribution<double> normal(1e6, 1);
  std::vector<double> x(shape.count());
  for (double& value : x) value = normal(dice);
  BatchNormPasses passes(shape.channels);
  std::vector<Moments> moments(shape.channels, Moments{9, 9, 9});
  passes.moments(DDP_FLOAT64, x.data(), shape, moments);
  for (std::size_t c = 0; c < shape.channels; ++c) {
    std::vector<double> values;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t channel = shape.channels_last ? i % shape.channels : i / shape.length % shape.channels;
      if (channel == c) values.push_back(x[i]);
    }
    check_same(moments[c], plain(values));
  }
}
