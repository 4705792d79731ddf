// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/reachable.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::rendezvous {

std::string own_reachable_address() {
  const std::string named = own_address_of(host_name());
  if (!named.empty() && !named.starts_with("127.") && named != "::1") return named;
  const std::vector<std::string> all = own_addresses();
  return all.empty() ? "127.0.0.1" : all.front();
}

std::uint16_t reserve_port() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) {
    system_error("cannot reserve a port for the other ranks");
  }
  socket.release();
  return ntohs(any.sin_port);
}

}  // namespace ddp::rendezvous
