// SPDX-License-Identifier: BSD-3-Clause
// The numeric address of a network interface.
#pragma once

#include <string>

namespace ddp::runtime {

// interface: a name, or several separated by commas of which the first that exists counts. Its first address of the
// same family as `like` (a numeric address); if that is empty, IPv4 before IPv6. Throws rendezvous::Error naming the
// interface.
std::string interface_address(const std::string& interface, const std::string& like);

}  // namespace ddp::runtime
