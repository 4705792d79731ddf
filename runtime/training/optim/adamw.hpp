// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of AdamW (Loshchilov and Hutter 2019) on arrays, in the order of
// torch.optim.AdamW: weight decay, both running means, then the step. Elements are independent, so
// any part of a parameter may be stepped separately.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/vector_unit.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

// Throws rendezvous::Error{InvalidArgument} for arguments that make no sense. See ddp_adamw_step().
void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays);
// Runs on a chosen vector unit, for tests.
void adamw_step(const ddp_adamw_options& numbers, const ddp_adamw_arrays& arrays, collectives::VectorUnit unit);

}  // namespace ddp::runtime
