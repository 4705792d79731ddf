// SPDX-License-Identifier: BSD-3-Clause
// Measures what this process allocates: the largest single allocation since the last reset, to show that a length in
// the input is not trusted, and all of the heap, with what each block costs beside its bytes.
#pragma once

#include <cstddef>

namespace ddp::rendezvous {

void reset_largest_allocation();
std::size_t largest_allocation();

std::size_t allocated_now();
void reset_peak_allocation();
std::size_t peak_allocation();  // the most that was allocated at one time since the last reset

}  // namespace ddp::rendezvous
