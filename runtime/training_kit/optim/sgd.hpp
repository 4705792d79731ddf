// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of stochastic gradient descent on arrays, in the order of torch.optim.SGD.
// Elements are independent.
#pragma once

#include "collectives/vector_unit.hpp"
#include "ddp/c/training.h"

namespace ddp::training {

// Throws ddp::Error with Status::InvalidArgument for arguments that make no sense. See ddp_sgd_step().
// Tests choose a vector unit.
void sgd_step(const ddp_sgd_options& numbers, const ddp_sgd_arrays& arrays,
              collectives::VectorUnit unit = collectives::vector_units().back());

}  // namespace ddp::training
