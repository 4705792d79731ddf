// SPDX-License-Identifier: BSD-3-Clause
// Random names for jobs, agents and worker processes, so that none is mistaken for another.
#pragma once

#include <string>

namespace ddp::rendezvous {

// Returns 16 hex digits from the kernel's random numbers.
std::string random_id();

}  // namespace ddp::rendezvous
