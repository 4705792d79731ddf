// SPDX-License-Identifier: BSD-3-Clause
// A test's bare socket: sends any bytes, and waits up to 20 s for an exact number of bytes or for the end.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::rendezvous {

class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}
  static RawConnection unconnected() { return RawConnection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static RawConnection to(std::uint16_t port) {
    RawConnection connection = unconnected();
    connection.connect(port);
    return connection;
  }

  bool connect(std::uint16_t port) {
    const sockaddr_in address = loopback(port);
    return ::connect(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Returns fewer bytes only if the connection ended, or nothing came for 20 s.
  std::string receive(std::size_t size) {
    std::string bytes;
    while (bytes.size() < size && readable()) {
      char part[65536];
      const auto got = ::recv(fd(), part, std::min(sizeof part, size - bytes.size()), 0);
      if (got <= 0) break;
      bytes.append(part, static_cast<std::size_t>(got));
    }
    return bytes;
  }
  bool ended() {  // waits until there is something to read or the connection ends
    char byte;
    return readable() && ::recv(fd(), &byte, 1, 0) <= 0;
  }
  bool has_ended() {  // returns at once
    char byte;
    const auto got = ::recv(fd(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  int fd() const { return fd_.get(); }

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

 private:
  bool readable() const {
    pollfd ready{fd(), POLLIN, 0};
    return ::poll(&ready, 1, 20'000) == 1;
  }

  Descriptor fd_;
};

}  // namespace ddp::rendezvous
