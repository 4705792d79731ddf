// SPDX-License-Identifier: BSD-3-Clause
// The model as libddp sees it, and what takes its steps.
#pragma once

#include <ddp/ddp.hpp>
#include <vector>

#include "apps/train/model/gpt.hpp"

namespace train {

// Plain memory, in the model's order. libddp averages and clips the model's own gradients in place.
std::vector<ddp::Parameter> ddp_parameters(Parameters& parameters);

// Matrices decay; biases and gains do not.
ddp::AdamW make_optimizer(Parameters& parameters, double weight_decay);

}  // namespace train
