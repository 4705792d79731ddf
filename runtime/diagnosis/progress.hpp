// SPDX-License-Identifier: BSD-3-Clause
// Shows the agent how far this process has come, in the memory that the two share (rendezvous/agent_page.hpp).
#pragma once

#include <cstdint>

namespace ddp::runtime {

// The first call asks the agent for the memory. If that fails, one line on stderr says why, and this call and all
// later ones do nothing, as without ddprun. Any thread may call.
void show_progress(std::int64_t step) noexcept;

}  // namespace ddp::runtime
