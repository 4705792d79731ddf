// SPDX-License-Identifier: BSD-3-Clause
// Finds the user of a process on another node by the process's connection to the store. The store asks the other node,
// whose agent asks the kernel there (peer_user.hpp):
//
//     store ── "10.0.0.7 41234 10.0.0.1 29500" ──▶ coordinator ──▶ agent of 10.0.0.7
//       ◀── the same, and "own", "none", "unknown" or "other alice (uid 1000)" ──┘
//
// The four words, address and port of the far end and of the store's, name the connection: no other connection has them
// while the store's end is alive.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "rendezvous/net/peer_user.hpp"

namespace ddp::rendezvous {

std::string connection_name(const ConnectionEnds& ends);

struct OwnerAnswer {
  enum class Owner {
    Own,      // the user of the node's ddprun, or root
    Other,    // `user`
    None,     // no process of that node has the connection
    Unknown,  // the node cannot tell
  };
  std::string connection, address;  // its name; the address of its far end
  Owner owner = Owner::Unknown;
  std::string user = {};
};

// Returns what this node answers. `link` is a TCP connection of this process, if it has one: whether the kernel shows
// sockets here is seen by it. An empty answer: the question names no connection.
std::string owner_answer(PeerUsers& users, std::string_view connection, const std::optional<ConnectionEnds>& link);
// Reads an answer. A question alone is an answer, too: nobody knows. Nothing: it names no connection.
std::optional<OwnerAnswer> read_owner_answer(std::string_view answer);

// Returns a process that has one of these sockets, given by their inodes: `pid 4711 (python3)`. Empty if this process
// may not see it. Walks through /proc; with `user` it looks at processes of this user only.
std::string process_with_socket(const std::set<std::string>& inodes, std::optional<uid_t> user = std::nullopt);

}  // namespace ddp::rendezvous
