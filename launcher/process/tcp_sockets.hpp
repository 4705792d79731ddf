// SPDX-License-Identifier: BSD-3-Clause
// What another process's TCP sockets say about its connections, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace ddp::launcher {

struct TcpSockets {
  bool lead_to_port = false;       // one is connected to the port in question, at any address
  std::vector<ino_t> unconnected;  // inodes of those that are in no table, as after a refusal, or wait for an answer
};

// Examines a process's TCP sockets. Finds none if the process is gone, or the caller may not see them.
TcpSockets tcp_sockets_of(pid_t pid, std::uint16_t port);

}  // namespace ddp::launcher
