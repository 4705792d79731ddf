// SPDX-License-Identifier: BSD-3-Clause
// Chooses the connections that a server closes when file descriptors are scarce, among those on which nothing whole has
// come. Silence may be legitimate: PyTorch 1.9 – 2.0 keep a silent connection to the store for each worker, next to one
// on which it speaks. So each connection that has spoken vouches for a silent one from its address.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::rendezvous {

// What is known of a connection's maker, in the order in which silent connections are closed.
enum class Standing {
  Stranger,  // its requests would not be admitted now
  Anybody,   // there is no rule that says who is admitted
  Member,    // its address is one that is admitted
  OwnUser,   // its process is on this machine and is this process's user's, or root's
};

struct OpenConnection {
  std::uint64_t id = 0;  // a newer connection has a larger one
  bool is_silent = true;
  bool is_new = false;  // it may yet be about to speak; members and the own user are given this time
  Standing standing = Standing::Stranger;
  std::string share;  // share_of() its address
};

// Returns what an address counts for: an IPv4 address, which may be v4-mapped, for itself, an IPv6 address for its
// network, since the rest of it is the other side's to choose.
std::string share_of(in6_addr address);

// Returns the ids of connections to close: at least one if there is any that may be closed, and up to a sixteenth of
// the silent ones, so that the next call is a while away. Strangers come first, then of each share the oldest beyond
// those that are vouched for, and of two shares the larger.
std::vector<std::uint64_t> choose_silent(std::vector<OpenConnection> connections);

}  // namespace ddp::rendezvous
