// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/tcp_sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/support/ports.hpp"

using ddp::launcher::tcp_sockets_of;
using ddp::launcher::TcpSockets;
using ddp::rendezvous::Descriptor;

namespace {

Descriptor connected(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return socket;
}

bool unconnected(const Descriptor& socket) {
  struct stat status = {};
  fstat(socket.get(), &status);
  const TcpSockets sockets = tcp_sockets_of(getpid(), 1);
  return std::count(sockets.unconnected.begin(), sockets.unconnected.end(), status.st_ino) == 1;
}

}  // namespace

TEST_CASE("tcp sockets: a refused one is unconnected, one that was accepted leads to its port", "[launcher][unit]") {
  ddp::rendezvous::StoreServer server({"127.0.0.1"}, 0);
  CHECK_FALSE(tcp_sockets_of(getpid(), server.port()).lead_to_port);
  const Descriptor refused = connected(ddp::testing::free_port());
  const Descriptor accepted = connected(server.port());
  CHECK(unconnected(refused));
  CHECK_FALSE(unconnected(accepted));
  CHECK(tcp_sockets_of(getpid(), server.port()).lead_to_port);
}

TEST_CASE("tcp sockets: others do not count", "[launcher][unit]") {
  const Descriptor udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Descriptor local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(unconnected(udp));
  CHECK_FALSE(unconnected(local));
}
