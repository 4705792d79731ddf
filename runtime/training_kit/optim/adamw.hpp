// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of AdamW (Loshchilov and Hutter 2019) and of Adam (Kingma and Ba 2015) on arrays,
// in the order of torch.optim.AdamW and Adam: weight decay, both running means, then the step. They
// differ in what decays: AdamW's weights, or Adam's gradients towards them. Elements are
// independent, so any part of a parameter may be stepped separately.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/vector_unit.hpp"
#include "ddp/c/training.h"

namespace ddp::training {

// These throw ddp::Error with Status::InvalidArgument for arguments that make no sense. See ddp_adamw_step().
// Tests choose a vector unit.
void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays,
                collectives::VectorUnit unit = collectives::vector_units().back());
void adam_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays,
               collectives::VectorUnit unit = collectives::vector_units().back());

}  // namespace ddp::training
