// SPDX-License-Identifier: BSD-3-Clause
// Listening TCP sockets on several addresses at one port. No names are resolved. The sockets are non-blocking and
// CLOEXEC, and any event loop can accept on them.
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

// Listens on every address at the given port, or for port 0 at a free one that is the same for all. An IPv6 address on
// a machine without IPv6 is left out as long as another one remains. Throws AddressInUse or another Error{System} with
// the address and port, the reason, the process that has the port (if that can be seen) and what to do; throws
// Error{InvalidArgument} if an address is not numeric.
Listeners listen_on(const std::vector<std::string>& numeric_addresses, std::uint16_t port);

// Returns the port on which a socket listens; 0 if it does not.
std::uint16_t port_of(int socket);

// Returns a numeric host and a port as people write them: `10.0.0.7:4711`, `[::1]:4711`.
std::string endpoint(const std::string& host, std::uint16_t port);

// Returns the other side of a connection: `10.0.0.7:4711`, or "a client" if the socket no longer knows.
std::string peer_of(int socket);

// Returns the process that listens on this port: `pid 4711 (python3)`, with " of uid 1001" if that is another user; of
// a process that this one may not see only "a process of uid 1001". Empty if there is none.
std::string port_owner(std::uint16_t port);

// Returns whether a process of another user, who is not root, listens on this port.
bool is_strangers_port(std::uint16_t port);

}  // namespace ddp::rendezvous
