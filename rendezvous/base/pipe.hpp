// SPDX-License-Identifier: BSD-3-Clause
// Pipes and pairs of sockets whose two ends have one owner each.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

// Returns a close-on-exec pipe, or nothing, with the reason in errno. `flags` may add O_NONBLOCK.
inline std::optional<Pipe> try_pipe(int flags = 0) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | flags) != 0) return std::nullopt;
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Returns a close-on-exec pipe. Throws Error "cannot make a pipe PURPOSE: REASON".
inline Pipe make_pipe(const std::string& purpose, int flags = 0) {
  if (auto pipe = try_pipe(flags)) return std::move(*pipe);
  system_error("cannot make a pipe " + purpose);
}

struct SocketPair {
  Descriptor left, right;
};

// Returns a close-on-exec pair of Unix sockets, or nothing, with the reason in errno.
inline std::optional<SocketPair> try_socket_pair(int type) {
  int ends[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
  return SocketPair{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Throws Error "CANNOT: REASON".
inline SocketPair make_socket_pair(int type, const std::string& cannot) {
  if (auto pair = try_socket_pair(type)) return std::move(*pair);
  system_error(cannot);
}

}  // namespace ddp::rendezvous
