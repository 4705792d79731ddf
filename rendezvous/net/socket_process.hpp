// SPDX-License-Identifier: BSD-3-Clause
// The process that has a socket.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

namespace ddp::rendezvous {

// Returns a process that has one of these sockets, given by their inodes: `pid 4711 (python3)`. Empty if this process
// may not see it. Walks through /proc; with `user` it looks at processes of this user only.
std::string process_with_socket(const std::set<std::string>& inodes, std::optional<uid_t> user = std::nullopt);

}  // namespace ddp::rendezvous
