// SPDX-License-Identifier: BSD-3-Clause
// Converts arrays of 16-bit floating point to 32 bits and back, on the widest vector unit that this processor has.
// Every unit gives the bits of the functions in element_types.hpp, so that all ranks agree whatever machine they run
// on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/vector_unit.hpp"

namespace ddp::collectives {

// Convert `count` elements. `dtype` is Float16 or BFloat16. `from` and `to` do not overlap. Tests choose a vector unit.
void widen(std::int32_t dtype, const void* from, float* to, std::size_t count, VectorUnit unit = vector_units().back());
void narrow(std::int32_t dtype, const float* from, void* to, std::size_t count,
            VectorUnit unit = vector_units().back());

}  // namespace ddp::collectives
