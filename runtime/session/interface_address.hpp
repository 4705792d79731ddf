// SPDX-License-Identifier: BSD-3-Clause
// The numeric address of a network interface.
#pragma once

#include <string>

namespace ddp::runtime {

// Returns the first address of the interface that has the same family as the numeric address `like`; if `like` is
// empty, an IPv4 address is preferred. `interface` is a name, or several separated by commas, of which the first that
// has such an address counts. Throws rendezvous::Error naming the interface.
std::string interface_address(const std::string& interface, const std::string& like);

}  // namespace ddp::runtime
