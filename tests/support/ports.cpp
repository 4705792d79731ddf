// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ddp::testing {

namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// Listens for a moment at `port`, or at any free port if that is 0. Returns the port; 0 if it is taken.
int listen_at(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;  // as servers do: connections of an earlier server do not matter
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = loopback(port);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool listens = bind(fd, generic, size) == 0 && listen(fd, 1) == 0;
  getsockname(fd, generic, &size);
  close(fd);
  return listens ? ntohs(address.sin_port) : 0;
}

}  // namespace

int free_port() { return listen_at(0); }

bool is_free(int port) { return listen_at(port) == port; }

bool is_listened_at(int port) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream sockets(path);
    for (std::string line; std::getline(sockets, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const bool listens = state == "0A";
      if (listens && std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16) == port) return true;
    }
  }
  return false;
}

Connection::Connection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = loopback(port);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("nobody listens on port " + std::to_string(port));
  }
}

Connection::~Connection() { close(fd_); }

}  // namespace ddp::testing
