// SPDX-License-Identifier: BSD-3-Clause
// Numeric addresses as text, each in one canonical form: "10.0.0.7" (also for ::ffff:10.0.0.7), "fd00::1",
// "fe80::1%eth0".
#pragma once

#include <sys/socket.h>

#include <string>

namespace ddp::rendezvous {

std::string numeric_address(const sockaddr* address);  // "" if it is neither IPv4 nor IPv6
std::string numeric_address(const std::string& text);  // the canonical form; "" if it is not a numeric address

// Return the two ends of a connected socket; "" if it is not TCP or no longer connected.
std::string peer_address(int socket);
std::string local_address(int socket);

// Returns whether it is in 127.0.0.0/8 or is ::1. `numeric` may have any form.
bool is_loopback(const std::string& numeric);

}  // namespace ddp::rendezvous
