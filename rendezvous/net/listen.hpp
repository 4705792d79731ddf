// SPDX-License-Identifier: BSD-3-Clause
// Listening TCP sockets: several addresses, one port. No names are resolved. Plain file descriptors (non-blocking,
// CLOEXEC), for whichever loop will accept on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

struct Listeners {
  std::vector<Descriptor> sockets;
  std::uint16_t port = 0;
};

class AddressInUse : public Error {
  using Error::Error;
};

// Listens on every address at the given port; 0: a free one, the same for all. An IPv6 address on a machine without
// IPv6 is left out as long as another one remains. Throws Error{System}, AddressInUse among them: the address and port,
// why, who has the port (if that can be seen), what to do. Error{InvalidArgument}: not a numeric address.
Listeners listen_on(const std::vector<std::string>& numeric_addresses, std::uint16_t port);

// A numeric host and a port as people write them: `10.0.0.7:4711`, `[::1]:4711`.
std::string endpoint(const std::string& host, std::uint16_t port);

// Whose connection this socket is: `10.0.0.7:4711`; "a client" if that cannot be told any more.
std::string peer_of(int socket);

// Who listens on this port: `pid 4711 (python3)`; empty if that is not ours to see.
std::string port_owner(std::uint16_t port);

}  // namespace ddp::rendezvous
