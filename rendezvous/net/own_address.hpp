// SPDX-License-Identifier: BSD-3-Clause
// Which addresses are this machine's.
#pragma once

#include <string>
#include <vector>

namespace ddp::rendezvous {

// Numeric addresses of all interfaces that are up; without loopback and link-local IPv6 ones.
std::vector<std::string> own_addresses();

// The address of this machine from which it would reach a numeric one; nothing is sent. Empty: no way leads there.
std::string address_towards(const std::string& numeric);

// Whether an endpoint's host means this machine: it is local_address (as the user gave it; may be empty), "localhost",
// this machine's name, full or short, or a name or number of an address that can be bound here. Resolves names, so it
// may block: to be called before there is any loop. A name that cannot be resolved is not ours.
bool is_own_host(const std::string& host, const std::string& local_address);

}  // namespace ddp::rendezvous
