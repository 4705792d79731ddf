// SPDX-License-Identifier: BSD-3-Clause
// How long a training step takes with and without DistributedDataParallel. In each round every kind of step is made
// once, and the next round begins with the next kind: what else the machine does hits all of them alike.
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
  double first_bucket_mib = 1;            // as PyTorch
  std::vector<double> bucket_mib = {25};  // each of them in turn
  int rounds = 20;
};

// A step takes as long as on the slowest rank.
struct StepFigures {
  std::string step;
  double bucket_mib = 0;  // 0: there are none
  std::size_t buckets = 0;
  std::vector<double> round_ms;
};

// Collective. The same on every rank. Throws std::runtime_error if a step does not come to the right gradients.
std::vector<StepFigures> measure_steps(const ProcessGroup& group, const StepPlan& plan);

}  // namespace ddp::bench
