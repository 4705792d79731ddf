// SPDX-License-Identifier: BSD-3-Clause
// Addresses as numbers in text, always in one form: "10.0.0.7" (also for ::ffff:10.0.0.7), "fd00::1", "fe80::1%eth0".
#pragma once

#include <sys/socket.h>

#include <string>

namespace ddp::rendezvous {

std::string numeric_address(const sockaddr* address);  // "" if it is neither IPv4 nor IPv6
std::string numeric_address(const std::string& text);  // in the one form; "" if it is not a numeric address

// Of a connected socket; "" if it is not TCP, or not connected any more.
std::string peer_address(int socket);
std::string local_address(int socket);

// 127.0.0.0/8 and ::1; numeric: in any form.
bool is_loopback(const std::string& numeric);

}  // namespace ddp::rendezvous
