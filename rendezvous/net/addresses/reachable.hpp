// SPDX-License-Identifier: BSD-3-Clause
// Where other hosts can reach a server of this process that does not listen yet.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::rendezvous {

// Returns an address at which other hosts reach this one: what its name leads to, unless that is loopback. Resolving
// may block.
std::string own_reachable_address();

// Returns a free port, which is this process's and its children's until they end, so that nobody else is given it; a
// socket that allows it (SO_REUSEADDR) can listen on it. Throws Error.
std::uint16_t reserve_port();

}  // namespace ddp::rendezvous
