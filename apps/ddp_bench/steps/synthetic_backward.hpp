// SPDX-License-Identifier: BSD-3-Clause
// A backward pass without a model: gradients of a model's shapes, last parameter first, each after its share of the
// time. The CPU computes for a part of that time (`busy`: all of it where CPUs train) and is free for the rest, as a
// host's CPU is while its GPU computes. A GPU does not wait for its host, so times are counted from the pass's start.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "apps/ddp_bench/steps/backward_work.h"
#include "apps/ddp_bench/steps/model_shapes.hpp"

namespace ddp::bench {

struct BackwardPlan {
  std::string model = "resnet18";
  double seconds = 0.2;
  double busy = 0.1;              // part of the time
  double updates_per_second = 0;  // on this machine's CPUs, see backward_work_speed()
};

class SyntheticBackward {
 public:
  // Every element of every gradient will be `value`.
  SyntheticBackward(const BackwardPlan& plan, float value) : shapes_(model_shapes(plan.model)), value_(value) {
    const double updates = plan.seconds * plan.busy * plan.updates_per_second;
    double passed = 0;
    steps_.resize(shapes_.size());
    for (std::size_t i = shapes_.size(); i-- > 0;) {
      passed += shapes_[i].share * plan.seconds;
      steps_[i] = {shapes_[i].share * updates, plan.busy < 1 ? static_cast<std::int64_t>(passed * 1e9) : -1};
    }
  }

  const std::vector<ParameterShape>& shapes() const { return shapes_; }
  std::size_t elements() const {
    std::size_t sum = 0;
    for (const ParameterShape& shape : shapes_) sum += shape.count;
    return sum;
  }
  float value() const { return value_; }

  // Writes the i-th gradient to gradient(i) and then calls ready(i).
  template <typename Gradient, typename Ready>
  void run(Gradient gradient, Ready ready) const {
    const std::int64_t start =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const Step& step = steps_[i];
      backward_work(gradient(i), shapes_[i].count, step.updates, value_,
                    step.ready_after < 0 ? 0 : start + step.ready_after);
      ready(i);
    }
  }

 private:
  struct Step {
    double updates = 0;
    std::int64_t ready_after = 0;  // ns from the pass's start; negative: as soon as it is computed
  };
  std::vector<ParameterShape> shapes_;
  float value_;
  std::vector<Step> steps_;
};

}  // namespace ddp::bench
