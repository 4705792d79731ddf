// SPDX-License-Identifier: BSD-3-Clause
// What another process's TCP sockets say about its connections, as /proc shows them, and how to end these from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

struct TcpSockets {
  bool lead_to_port = false;       // one is connected to the port in question, at any address
  std::vector<ino_t> unconnected;  // inodes of those that are in no table, as after a refusal, or wait for an answer
};

// Examines a process's TCP sockets. Finds none if the process is gone, or the caller may not see them.
TcpSockets tcp_sockets_of(pid_t pid, std::uint16_t port);

// TCP sockets of a process, by inode: these, or all but these.
struct SocketChoice {
  std::set<ino_t> inodes = {};
  bool are_others = false;

  bool has(ino_t inode) const { return (inodes.count(inode) > 0) != are_others; }
};

// Returns why this process may not end that one's connections; empty if it may.
std::string why_not_endable(pid_t pid);
// Shuts the process's connections that are chosen down, so that whatever waits for one gets an error there. Sockets
// that listen stay as they are. Returns how many were shut; a process that is gone has none. `pid` is a child of this
// process that is not reaped.
int end_connections(pid_t pid, const SocketChoice& choice);

}  // namespace ddp::launcher
