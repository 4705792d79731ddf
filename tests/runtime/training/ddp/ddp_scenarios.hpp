// SPDX-License-Identifier: BSD-3-Clause
// Scenarios that ranks of the DDP tests run, by name, and what several of them share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {

Scenarios step_scenarios();
Scenarios hook_scenarios();
Scenarios compression_scenarios();
Scenarios join_scenarios();
Scenarios mlp_scenarios();

// Parameters with `sizes` floats, each with its own gradient.
struct Tensors {
  explicit Tensors(const std::vector<std::size_t>& sizes) {
    for (const std::size_t size : sizes) {
      values.emplace_back(size);
      grads.emplace_back(size);
    }
  }
  std::vector<Parameter> parameters(bool own_gradients = true) {
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float* grad = own_gradients ? grads[i].data() : nullptr;
      list.emplace_back("p" + std::to_string(i), values[i].data(), grad, values[i].size());
    }
    return list;
  }
  void fill(std::size_t i, float value) { grads[i].assign(grads[i].size(), value); }
  bool grad_is(std::size_t i, float value) const { return grads[i] == std::vector<float>(grads[i].size(), value); }

  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> grads;
};

// A user's hook that computes the plain average in one stage and records the buckets it was given.
class AveragingHook final : public CommHook {
 public:
  explicit AveragingHook(ProcessGroup group) : group_(std::move(group)) {}

  void start(const GradBucket& bucket) override {
    std::vector<std::size_t> parameters;
    for (std::size_t k = 0; k < bucket.size(); ++k) parameters.push_back(bucket.parameter(k));
    if (bucket.index() == 0) seen_.clear();
    expect(bucket.index() == seen_.size(), "buckets start in order");
    seen_.push_back(parameters);
    was_last_ = bucket.is_last();
    work_.resize(std::max(work_.size(), bucket.index() + 1));
    work_[bucket.index()] = group_.all_reduce_async(bucket.buffer(), ReduceOp::Avg);
  }
  bool advance(const GradBucket& bucket) override {
    work_[bucket.index()].wait();
    return false;
  }

  // Returns the parameters of each bucket in the last step.
  const std::vector<std::vector<std::size_t>>& seen() const { return seen_; }
  bool was_last() const { return was_last_; }

 private:
  ProcessGroup group_;
  std::vector<Work> work_;
  std::vector<std::vector<std::size_t>> seen_;
  bool was_last_ = false;
};

}  // namespace ddp::test
