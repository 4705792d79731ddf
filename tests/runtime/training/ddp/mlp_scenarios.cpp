// SPDX-License-Identifier: BSD-3-Clause
// A small network of plain loops, trained by all ranks together and, on each rank, also alone on
// all ranks' batches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace ddp::test {
namespace {

// Two layers with a ReLU between them; the loss is the mean over the batch of the squared distance to the target.
template <typename T>
class Mlp {
 public:
  static constexpr std::size_t kIn = 4;
  static constexpr std::size_t kHidden = 6;
  static constexpr std::size_t kOut = 3;

  // Values are multiples of 1/4, which need few bits.
  explicit Mlp(unsigned seed)
      : values_{std::vector<T>(kHidden * kIn), std::vector<T>(kHidden), std::vector<T>(kOut * kHidden),
                std::vector<T>(kOut)},
        grads_(values_) {
    std::mt19937 random(seed);
    for (std::vector<T>& v : values_) {
      for (T& x : v) x = static_cast<T>(static_cast<int>(random() % 9) - 4) / 4;
    }
  }

  std::vector<std::vector<T>>& values() { return values_; }
  std::vector<std::vector<T>>& grads() { return grads_; }
  std::vector<Parameter> parameters() {
    const char* const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      list.emplace_back(names[i], values_[i].data(), grads_[i].data(), values_[i].size());
    }
    return list;
  }

  // Calls ready(i) when gradient i is complete.
  template <typename Ready>
  void backward(const std::vector<T>& x, const std::vector<T>& target, Ready&& ready) {
    const std::size_t batch = x.size() / kIn;
    for (std::vector<T>& g : grads_) std::fill(g.begin(), g.end(), T{0});
    std::vector<T> hidden(batch * kHidden), out_gradient(batch * kOut);
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t h = 0; h < kHidden; ++h) {
        T sum = values_[1][h];
        for (std::size_t k = 0; k < kIn; ++k) sum += values_[0][h * kIn + k] * x[b * kIn + k];
        hidden[b * kHidden + h] = std::max(sum, T{0});
      }
      for (std::size_t o = 0; o < kOut; ++o) {
        T sum = values_[3][o];
        for (std::size_t h = 0; h < kHidden; ++h) sum += values_[2][o * kHidden + h] * hidden[b * kHidden + h];
        out_gradient[b * kOut + o] = 2 * (sum - target[b * kOut + o]) / static_cast<T>(batch);
      }
    }
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t o = 0; o < kOut; ++o) {
        grads_[3][o] += out_gradient[b * kOut + o];
        for (std::size_t h = 0; h < kHidden; ++h) {
          grads_[2][o * kHidden + h] += out_gradient[b * kOut + o] * hidden[b * kHidden + h];
        }
      }
    }
    ready(3);
    ready(2);
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t h = 0; h < kHidden; ++h) {
        if (hidden[b * kHidden + h] <= 0) continue;
        T sum = 0;
        for (std::size_t o = 0; o < kOut; ++o) sum += out_gradient[b * kOut + o] * values_[2][o * kHidden + h];
        grads_[1][h] += sum;
        for (std::size_t k = 0; k < kIn; ++k) grads_[0][h * kIn + k] += sum * x[b * kIn + k];
      }
    }
    ready(1);
    ready(0);
  }

  void update(T rate) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      for (std::size_t k = 0; k < values_[i].size(); ++k) values_[i][k] -= rate * grads_[i][k];
    }
  }

 private:
  std::vector<std::vector<T>> values_;
  std::vector<std::vector<T>> grads_;
};

// Returns whole numbers in -2..2, determined by rank and step.
template <typename T>
std::vector<T> numbers(std::size_t count, int rank, int step, int what) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + 10 * rank + what));
  std::vector<T> result(count);
  for (T& x : result) x = static_cast<T>(static_cast<int>(random() % 5) - 2);
  return result;
}

template <typename T>
double largest_difference(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      const double difference = std::abs(static_cast<double>(a[i][k]) - static_cast<double>(b[i][k]));
      largest = std::max(largest, difference / std::max(1.0, std::abs(static_cast<double>(b[i][k]))));
    }
  }
  return largest;
}

// Trains both networks for `steps` steps, and calls compare after each backward.
template <typename T, typename Compare>
void train_both(Session& session, int steps, T rate, bool accumulate, Compare&& compare) {
  constexpr std::size_t kBatch = 8;  // samples of one rank in one backward
  const int rank = session.rank();
  const int n = session.world_size();
  Mlp<T> mine(static_cast<unsigned>(7 + rank));  // rank 0's values are broadcast
  Mlp<T> whole(7);
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 100;
  DistributedDataParallel model(session.world(), mine.parameters(), options);
  expect(mine.values() == whole.values(), "all begin with rank 0's values");
  for (int step = 0; step < steps; ++step) {
    const auto x = [&](int r) { return numbers<T>(kBatch * Mlp<T>::kIn, r, step, 0); };
    const auto target = [&](int r) { return numbers<T>(kBatch * Mlp<T>::kOut, r, step, 1); };
    if (accumulate) {  // half of the batch under no_sync; the gradients of both halves are added
      std::vector<std::vector<T>> sum;
      const auto half_of = [](const std::vector<T>& all, int half) {
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        return half == 0 ? std::vector<T>(all.begin(), middle) : std::vector<T>(middle, all.end());
      };
      {
        const auto local = model.no_sync();
        mine.backward(half_of(x(rank), 0), half_of(target(rank), 0), [&](std::size_t i) { model.mark_ready(i); });
      }
      sum = mine.grads();
      mine.backward(half_of(x(rank), 1), half_of(target(rank), 1), [](std::size_t) {});
      for (std::size_t i = 4; i-- > 0;) {  // each half's gradient is a mean over its own samples
        for (std::size_t k = 0; k < sum[i].size(); ++k) mine.grads()[i][k] = (mine.grads()[i][k] + sum[i][k]) / 2;
        model.mark_ready(i);
      }
    } else {
      mine.backward(x(rank), target(rank), [&](std::size_t i) { model.mark_ready(i); });
    }
    model.synchronize();
    std::vector<T> all_x, all_targets;
    for (int r = 0; r < n; ++r) {
      const std::vector<T> xs = x(r);
      const std::vector<T> targets = target(r);
      all_x.insert(all_x.end(), xs.begin(), xs.end());
      all_targets.insert(all_targets.end(), targets.begin(), targets.end());
    }
    whole.backward(all_x, all_targets, [](std::size_t) {});
    compare(mine, whole, step);
    mine.update(rate);
    whole.update(rate);
  }
}

// In double and for two steps, all numbers have so few bits that no sum or product is rounded, as
// long as the batch and the world size are powers of two. Then neither the order of additions nor
// the place of the division matters.
void exact(Session& session, bool accumulate) {
  train_both<double>(session, 2, 0.25, accumulate, [](auto& mine, auto& whole, int step) {
    expect(mine.grads() == whole.grads(), "step " + std::to_string(step) + ": the gradients' bits are the same");
  });
}

// With rounding, results differ slightly because ranks add in another order than one process does.
void close(Session& session) {
  double largest = 0;
  train_both<float>(session, 10, 0.01F, false, [&](auto& mine, auto& whole, int) {
    largest = std::max(largest, largest_difference(mine.grads(), whole.grads()));
  });
  expect(largest <= 1e-6, "the largest difference of a gradient is " + std::to_string(largest * 1e6) + "e-6");
  say("largest difference " + std::to_string(largest * 1e9) + "e-9");
}

}  // namespace

Scenarios mlp_scenarios() {
  return {{"whole batch, exact", [](Session& s) { exact(s, false); }},
          {"whole batch, accumulated", [](Session& s) { exact(s, true); }},
          {"whole batch, rounded", close}};
}

}  // namespace ddp::test
