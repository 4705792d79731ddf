// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/numeric_address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

namespace ddp::rendezvous {
namespace {

using GetName = int (*)(int, sockaddr*, socklen_t*);

std::string end_of(int socket, GetName get_name) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return get_name(socket, address, &size) == 0 ? numeric_address(address) : "";
}

}  // namespace

std::string numeric_address(const sockaddr* address) {
  sockaddr_in unmapped{};
  socklen_t size = sizeof unmapped;
  if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    size = sizeof(sockaddr_in6);
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      unmapped.sin_family = AF_INET;
      std::memcpy(&unmapped.sin_addr, &v6.s6_addr[12], sizeof unmapped.sin_addr);
      address = reinterpret_cast<const sockaddr*>(&unmapped);
      size = sizeof unmapped;
    }
  } else if (address->sa_family != AF_INET) {
    return "";
  }
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::string numeric_address(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (text.empty() || ::getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return "";
  std::string numeric = numeric_address(found->ai_addr);
  ::freeaddrinfo(found);
  return numeric;
}

std::string peer_address(int socket) {
  return end_of(socket, [](int fd, sockaddr* address, socklen_t* size) { return ::getpeername(fd, address, size); });
}

std::string local_address(int socket) {
  return end_of(socket, [](int fd, sockaddr* address, socklen_t* size) { return ::getsockname(fd, address, size); });
}

bool is_loopback(const std::string& numeric) {
  const std::string address = numeric_address(numeric);
  return address == "::1" || address.starts_with("127.");
}

}  // namespace ddp::rendezvous
