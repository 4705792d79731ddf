// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD's arithmetic on several ranks' buckets in one process. The test averages what would be
// sent.
#include "runtime/training/hooks/powersgd_bucket.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

using namespace ddp::runtime;

namespace {

using Gradients = std::vector<std::vector<float>>;  // per rank

constexpr std::size_t kRows = 20;
constexpr std::size_t kCols = 30;
constexpr std::size_t kBias = 20;

// Layout of one rank's bucket: a bias and a matrix.
struct Layout {
  std::int64_t bias_shape[1] = {kBias};
  std::int64_t matrix_shape[3] = {kRows, 5, 6};
  ddp_grad_slice slices[2] = {{1, 0, kBias, bias_shape, 1, nullptr},
                              {0, kBias, kRows* kCols, matrix_shape, 3, nullptr}};

  ddp_grad_bucket bucket(std::vector<float>& memory) {
    return {0, 1, {memory.data(), memory.size(), DDP_FLOAT32, {DDP_CPU, 0}}, slices, 2};
  }
};

class Job {
 public:
  Job(std::size_t size, const PowerSgdOptions& options) {
    std::vector<float> memory(kBias + kRows * kCols);
    for (std::size_t rank = 0; rank < size; ++rank) {
      ranks_.push_back(make_powersgd_bucket(layout_.bucket(memory), options));
    }
  }

  // Runs one step: replaces each rank's gradients by what the rank ends up with.
  void step(Gradients& gradients) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->compress(gradients[r].data());
    average(&PowerSgdBucket::p);
    average(&PowerSgdBucket::rest);
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->project(gradients[r].data());
    average(&PowerSgdBucket::q);
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->decompress(gradients[r].data());
  }

  std::size_t elements_sent() const { return ranks_[0]->p().count + ranks_[0]->q().count + ranks_[0]->rest().count; }

 private:
  void average(ddp_buffer (PowerSgdBucket::*what)()) {
    const std::size_t count = (ranks_[0].get()->*what)().count;
    std::vector<float> sum(count, 0);
    for (const auto& rank : ranks_) {
      const float* values = static_cast<const float*>((rank.get()->*what)().data);
      for (std::size_t i = 0; i < count; ++i) sum[i] += values[i] / static_cast<float>(ranks_.size());
    }
    for (const auto& rank : ranks_) std::copy(sum.begin(), sum.end(), static_cast<float*>((rank.get()->*what)().data));
  }

  Layout layout_;
  std::vector<std::unique_ptr<PowerSgdBucket>> ranks_;
};

Gradients random_gradients(std::size_t ranks, unsigned seed) {
  std::mt19937 generator(seed);
  Gradients gradients(ranks);
  for (auto& of_rank : gradients) {
    for (std::size_t i = 0; i < kBias + kRows * kCols; ++i) {
      of_rank.push_back(static_cast<float>(static_cast<double>(generator()) / 0x1p31 - 1));
    }
  }
  return gradients;
}

std::vector<double> average_of(const Gradients& gradients) {
  std::vector<double> sum(gradients[0].size(), 0);
  for (const auto& of_rank : gradients) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double{of_rank[i]} / static_cast<double>(gradients.size());
  }
  return sum;
}

// Returns the matrix's distance from `want`, relative to the length of `want`.
template <typename T>
double distance(const std::vector<T>& have, const std::vector<double>& want) {
  double difference = 0, length = 0;
  for (std::size_t i = kBias; i < want.size(); ++i) {
    difference += (double{have[i]} - want[i]) * (double{have[i]} - want[i]);
    length += want[i] * want[i];
  }
  return std::sqrt(difference / length);
}

// Every rank's matrix is the product of one column, shared by all ranks, and a row of its own.
Gradients gradients_of_rank_one(std::size_t ranks) {
  Gradients gradients = random_gradients(ranks, 3);
  for (auto& of_rank : gradients) {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kCols; ++j) {
        of_rank[kBias + i * kCols + j] = of_rank[j % kBias] * static_cast<float>(i + 1) + static_cast<float>(i + 1);
      }
    }
  }
  return gradients;
}

PowerSgdOptions options(std::size_t columns) { return {.columns = columns}; }

}  // namespace

TEST_CASE("PowerSGD: every rank ends with the same gradients, and vectors with the plain average", "[training][unit]") {
  Job job(3, options(2));
  CHECK(job.elements_sent() == 2 * (kRows + kCols) + kBias);
  Gradients gradients = random_gradients(3, 1);
  for (int step = 0; step < 3; ++step) {
    const std::vector<double> average = average_of(gradients);
    job.step(gradients);
    CHECK(gradients[1] == gradients[0]);
    CHECK(gradients[2] == gradients[0]);
    for (std::size_t i = 0; i < kBias; ++i) CHECK(gradients[0][i] == Approx(average[i]).margin(1e-6));
    gradients = random_gradients(3, 2);
  }
}

TEST_CASE("PowerSGD: an average whose rank is kept arrives unchanged", "[training][unit]") {
  for (const std::size_t columns : {std::size_t{1}, std::size_t{4}}) {
    Job job(3, options(columns));
    Gradients gradients = gradients_of_rank_one(3);
    const std::vector<double> average = average_of(gradients);
    job.step(gradients);
    CHECK(distance(gradients[0], average) < 1e-5);
  }
}

TEST_CASE("PowerSGD: columns that became zero are filled again when gradients need them", "[training][unit]") {
  PowerSgdOptions with = options(4);
  with.error_feedback = false;
  double distances[2];
  for (const bool is_fresh : {false, true}) {
    Job job(3, with);
    Gradients gradients = gradients_of_rank_one(3);
    if (!is_fresh) job.step(gradients);
    for (int step = 0; step < 50; ++step) {
      gradients = random_gradients(3, 1);
      job.step(gradients);
    }
    distances[is_fresh ? 1 : 0] = distance(gradients[0], average_of(random_gradients(3, 1)));
  }
  CHECK(distances[0] == Approx(distances[1]).epsilon(0.02));
}

TEST_CASE("PowerSGD: with error feedback no part of the gradients is lost, only late", "[training][unit]") {
  constexpr int kSteps = 200;
  const std::vector<double> average = average_of(random_gradients(2, 4));
  double distances[2];
  for (const bool feedback : {false, true}) {
    PowerSgdOptions with = options(1);
    with.error_feedback = feedback;
    Job job(2, with);
    std::vector<double> sum(average.size(), 0);
    for (int step = 0; step < kSteps; ++step) {
      Gradients gradients = random_gradients(2, 4);
      job.step(gradients);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double{gradients[0][i]} / kSteps;
    }
    distances[feedback ? 1 : 0] = distance(sum, average);
  }
  CHECK(distances[0] > 0.5);
  CHECK(distances[1] < 0.15);
}

TEST_CASE("PowerSGD: starting from the last step's Q, it finds the best approximation of constant gradients",
          "[training][unit]") {
  const std::vector<double> average = average_of(random_gradients(2, 5));
  double first = 0, last = 0;
  PowerSgdOptions with = options(1);
  with.error_feedback = false;
  Job job(2, with);
  for (int step = 0; step < 100; ++step) {
    Gradients gradients = random_gradients(2, 5);
    job.step(gradients);
    (step == 0 ? first : last) = distance(gradients[0], average);
  }
  CHECK(last < first - 0.02);
  // Without a warm start, a step knows nothing of the steps before it.
  with.warm_start = false;
  Job cold(2, with);
  for (int step = 0; step < 50; ++step) {
    Gradients gradients = random_gradients(2, 5);
    cold.step(gradients);
    CHECK(distance(gradients[0], average) > last + 1e-3);
  }
}

TEST_CASE("PowerSGD: the first Q depends on the seed", "[training][unit]") {
  PowerSgdOptions with = options(1);
  Job job(1, with);
  Job again(1, with);
  with.seed = 1;
  Job other(1, with);
  Gradients a = random_gradients(1, 6), b = a, c = a;
  job.step(a);
  again.step(b);
  other.step(c);
  CHECK(a == b);
  CHECK(a != c);
}

TEST_CASE("PowerSGD: gradients of zeros are zeros and leave no trace", "[training][unit]") {
  Job job(2, options(2));
  Gradients zeros(2, std::vector<float>(kBias + kRows * kCols, 0));
  const Gradients expected = zeros;
  job.step(zeros);
  CHECK(zeros == expected);
  Gradients gradients = gradients_of_rank_one(2);
  const std::vector<double> average = average_of(gradients);
  job.step(gradients);
  CHECK(distance(gradients[0], average) < 1e-5);
}

TEST_CASE("PowerSGD: one rank's overflow reaches all ranks, and only in that step", "[training][unit]") {
  Job job(2, options(2));
  Gradients gradients = random_gradients(2, 7);
  job.step(gradients);
  gradients = random_gradients(2, 8);
  gradients[1][kBias + 5] = std::numeric_limits<float>::infinity();
  job.step(gradients);
  for (const auto& of_rank : gradients) CHECK_FALSE(std::isfinite(of_rank[kBias + 5]));
  gradients = gradients_of_rank_one(2);
  const std::vector<double> average = average_of(gradients);
  job.step(gradients);
  CHECK(distance(gradients[0], average) < 1e-5);
  CHECK(gradients[0] == gradients[1]);
}
