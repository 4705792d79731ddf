// SPDX-License-Identifier: BSD-3-Clause
// Measures how long a training step takes with and without DistributedDataParallel. Each round makes every kind of step
// once, and the next round begins with the next kind, so that other load on the machine affects all of them equally.
//
//   backward   nothing is communicated
//   plain      backward, then one all_reduce of all gradients, which lie in one buffer
//   ddp        DistributedDataParallel, gradients in the caller's memory: copied into buckets, and back
//   ddp_view   gradients in the buckets, PyTorch's gradient_as_bucket_view
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "apps/ddp_bench/steps/synthetic_backward.hpp"
#include "ddp/ddp.hpp"

namespace ddp::bench {

struct StepPlan {
  BackwardPlan backward;
  double first_bucket_mib = 1;            // PyTorch's default
  std::vector<double> bucket_mib = {25};  // each of them in turn
  int rounds = 20;
};

// Figures of one kind of step. A step takes as long as on the slowest rank.
struct StepFigures {
  std::string step;
  double bucket_mib = 0;  // 0: there are none
  std::size_t buckets = 0;
  std::vector<double> round_ms;
};

// Measures all kinds of steps and returns the same figures on every rank. Every rank must call it. Throws
// std::runtime_error if a step computes wrong gradients.
std::vector<StepFigures> measure_steps(const ProcessGroup& group, const StepPlan& plan);

}  // namespace ddp::bench
