// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of averages and weighted sums on the host: contributions are scaled, then summed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::runtime {

// Multiplies float32 or float64 elements, in their own type. `to` may be `from`.
void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, double factor);
// Returns 1/size as the type rounds it, which DDP_AVG multiplies each contribution by. Multiplying, not dividing, gives
// PyTorch's bits.
double averaging_factor(int size, std::int32_t dtype);

}  // namespace ddp::runtime
