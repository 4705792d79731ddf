// SPDX-License-Identifier: BSD-3-Clause
// Names for things that must not be mistaken for another: jobs, agents, worker processes.
#pragma once

#include <string>

namespace ddp::rendezvous {

// 16 hex digits from the kernel's random numbers.
std::string random_id();

}  // namespace ddp::rendezvous
