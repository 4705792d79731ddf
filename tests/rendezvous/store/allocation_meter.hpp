// SPDX-License-Identifier: BSD-3-Clause
// Measures the largest single allocation since the last reset, to show that a length in the input is not trusted.
#pragma once

#include <cstddef>

namespace ddp::rendezvous {

void reset_largest_allocation();
std::size_t largest_allocation();

}  // namespace ddp::rendezvous
