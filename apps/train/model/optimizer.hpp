// SPDX-License-Identifier: BSD-3-Clause
// The model's parameters in libddp's form, and their optimizer.
#pragma once

#include <ddp/ddp.hpp>
#include <ddp/training.hpp>
#include <vector>

#include "apps/train/model/gpt.hpp"

namespace train {

// Returns views of the parameters in the model's order. libddp averages and clips the gradients in
// place.
std::vector<ddp::Parameter> ddp_parameters(Parameters& parameters);

// Applies weight decay to matrices, but not to biases and gains.
ddp::AdamW make_optimizer(Parameters& parameters, double weight_decay);

}  // namespace train
