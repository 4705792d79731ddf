// SPDX-License-Identifier: BSD-3-Clause
// The largest single allocation since the last reset: shows that a length in the input is not believed.
#pragma once

#include <cstddef>

namespace ddp::rendezvous {

void reset_largest_allocation();
std::size_t largest_allocation();

}  // namespace ddp::rendezvous
