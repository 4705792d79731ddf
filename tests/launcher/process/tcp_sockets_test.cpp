// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/tcp_sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/server.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/ports.hpp"

using ddp::launcher::end_connections;
using ddp::launcher::SocketChoice;
using ddp::launcher::tcp_sockets_of;
using ddp::launcher::TcpSockets;
using ddp::launcher::why_not_endable;
using ddp::rendezvous::Descriptor;
using ddp::rendezvous::port_of;

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

ino_t inode_of(const Descriptor& socket) {
  struct stat status = {};
  fstat(socket.get(), &status);
  return status.st_ino;
}

bool unconnected(const Descriptor& socket) {
  const TcpSockets sockets = tcp_sockets_of(getpid(), 1);
  return std::count(sockets.unconnected.begin(), sockets.unconnected.end(), inode_of(socket)) == 1;
}

// Returns whether nothing more can be read.
bool is_at_end(const Descriptor& socket) {
  char byte = 0;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

struct Child {
  Child(pid_t started, Descriptor holds) : pid(started), life(std::move(holds)) {}
  ~Child() {
    life.close();
    waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid;
  Descriptor life;  // it ends when this is closed
};

Child child_that_waits() {
  int ends[2] = {};
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    char byte = 0;
    [[maybe_unused]] const auto got = read(ends[0], &byte, 1);
    _exit(0);
  }
  close(ends[0]);
  return {pid, Descriptor(ends[1])};
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

TEST_CASE("tcp sockets: connections of a child that are chosen end, and its others, and what listens, stay",
          "[launcher][unit]") {
  const bool are_others = GENERATE(false, true);
  // Nobody accepts: what is accepted would be a connection of the child, too.
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(listen(listener.get(), 2) == 0);
  const int port = port_of(listener.get());
  const Descriptor chosen = connected(port), other = connected(port);
  const Child child = child_that_waits();  // it has the same sockets
  if (!why_not_endable(child.pid).empty()) ddp::testing::skip("not here: " + why_not_endable(child.pid));
  const SocketChoice choice = {are_others ? std::set<ino_t>{inode_of(other)} : std::set<ino_t>{inode_of(chosen)},
                               are_others};
  CHECK(end_connections(child.pid, choice) == 1);
  CHECK(is_at_end(chosen));
  CHECK_FALSE(is_at_end(other));
  int is_listening = 0;
  socklen_t size = sizeof is_listening;
  CHECK(getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) == 0);
  CHECK(is_listening == 1);
}

TEST_CASE("tcp sockets: a process that is gone has no connections to end", "[launcher][unit]") {
  pid_t gone = 0;
  {
    const Child child = child_that_waits();
    gone = child.pid;
  }
  CHECK(end_connections(gone, {{}, true}) == 0);
  CHECK_FALSE(why_not_endable(gone).empty());
}

TEST_CASE("tcp sockets: others do not count", "[launcher][unit]") {
  const Descriptor udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Descriptor local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(unconnected(udp));
  CHECK_FALSE(unconnected(local));
}
