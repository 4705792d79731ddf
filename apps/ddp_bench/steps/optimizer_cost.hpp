// SPDX-License-Identifier: BSD-3-Clause
// Measures the optimizer's part of a step on a GPU: AdamW, and the clipping of gradients, for the parameters of a
// well-known model in float32, and what master weights add. torch_optimizers.py is the same with PyTorch.
#pragma once

#include <string>
#include <vector>

namespace ddp::bench {

struct OptimizerCost {
  // adamw: AdamW::step(); clip: GradientNorm::clip(); of MasterWeights of parameters in bfloat16: read_gradients,
  // write_values
  const char* what = "";
  double median_us = 0;  // what a call takes: its share of a block of calls, until the GPU is done
  double host_us = 0;    // how long a call keeps the CPU
};

// Results are checked before they are timed. Throws std::runtime_error for a wrong one, or without a GPU.
std::vector<OptimizerCost> optimizer_costs(const std::string& model, int rounds);

}  // namespace ddp::bench
