// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/listen.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/connection_owner.hpp"

namespace ddp::rendezvous {
namespace {

// Tries for port 0: the port that the system picks for the first address may be taken on a later one.
constexpr int kPicks = 32;

struct Address {
  std::string text;
  sockaddr_storage storage{};
  socklen_t size = 0;

  bool is_v6() const { return storage.ss_family == AF_INET6; }
  in_port_t& port() {  // in network byte order
    if (is_v6()) return reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port;
    return reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  }
  bool is_v6_loopback_or_any() const {
    if (!is_v6()) return false;
    const in6_addr& bytes = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&bytes) || IN6_IS_ADDR_UNSPECIFIED(&bytes);
  }
};

Address parse(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), "0", &hints, &found) != 0) {
    throw Error(ErrorCode::InvalidArgument, "cannot listen on \"" + text + "\": not a numeric address");
  }
  Address address;
  address.text = text;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

// A listening socket, or none and an errno.
struct Outcome {
  Descriptor socket;
  int error = 0;
};

// Listens on one address. `port` is the wanted one, 0 for any, and becomes the one that the socket has.
Outcome open_one(Address address, std::uint16_t& port) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket) return {{}, errno};
  const int fd = socket.get();
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // connections in TIME_WAIT do not hold the port
  if (address.is_v6()) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  address.port() = htons(port);
  auto* raw = reinterpret_cast<sockaddr*>(&address.storage);
  // With SO_REUSEADDR a second bind may succeed and only the second listen fail. The kernel caps the backlog.
  if (::bind(fd, raw, address.size) != 0 || ::listen(fd, INT_MAX) != 0 || ::getsockname(fd, raw, &address.size) != 0) {
    return {{}, errno};
  }
  port = ntohs(address.port());
  return {std::move(socket), 0};
}

bool family_is_missing(const Address& address, int error) {
  // IPv6 is compiled out, or it is switched off by sysctl: then not even ::1 can be bound.
  return error == EAFNOSUPPORT || (error == EADDRNOTAVAIL && address.is_v6_loopback_or_any());
}

[[noreturn]] void refuse(const Address& address, std::uint16_t port, int error) {
  std::string message = "cannot listen on " + endpoint(address.text, port) + ": ";
  switch (error) {
    case EADDRINUSE: {
      const std::string owner = port == 0 ? "" : port_owner(port);
      message += "port " + std::to_string(port) + " is taken" + (owner.empty() ? "" : " by " + owner) +
                 "; choose another port";
      throw AddressInUse(ErrorCode::System, message);
    }
    case EACCES:
      message += "not allowed (ports below 1024 are the system's); choose another port";
      break;
    case EADDRNOTAVAIL:
      message += "this machine does not have that address; choose one of its own";
      break;
    case EMFILE:
    case ENFILE:
      message += "too many open files; raise the limit (ulimit -n)";
      break;
    default:
      message += std::generic_category().message(error);
  }
  throw Error(ErrorCode::System, message);
}

// The sockets that listen on a port, as /proc/net/tcp lists them.
struct Listening {
  std::set<std::string> inodes;
  std::set<uid_t> users;
};

Listening listening_on(std::uint16_t port) {
  Listening found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    FileStream file(table);
    std::string line;
    while (std::getline(file, line)) {
      TextStream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      const std::size_t colon = local.rfind(':');
      if (state != "0A" || colon == std::string::npos) continue;
      if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != port) continue;
      found.inodes.insert(inode);
      found.users.insert(static_cast<uid_t>(std::strtoul(uid.c_str(), nullptr, 10)));
    }
  }
  return found;
}

}  // namespace

Listeners listen_on(const std::vector<std::string>& numeric_addresses, std::uint16_t port) {
  std::vector<Address> addresses;
  for (const std::string& text : numeric_addresses) addresses.push_back(parse(text));
  if (addresses.empty()) throw Error(ErrorCode::InvalidArgument, "cannot listen: no address given");

  for (int pick = 1;; ++pick) {
    // Open the addresses one after the other; the first one decides the port if it is 0.
    Listeners listeners{{}, port};
    const Address* failed = nullptr;
    int error = 0;
    for (const Address& address : addresses) {
      Outcome outcome = open_one(address, listeners.port);
      if (outcome.socket) {
        listeners.sockets.push_back(std::move(outcome.socket));
        continue;
      }
      failed = &address;
      error = outcome.error;
      if (!family_is_missing(address, error)) break;
    }
    // A machine without IPv6 serves the other addresses.
    const bool all = failed == nullptr || family_is_missing(*failed, error);
    if (all && !listeners.sockets.empty()) return listeners;
    listeners.sockets.clear();  // refuse() names the process that has the port, which must not be this one
    const bool unlucky_pick = port == 0 && error == EADDRINUSE && pick < kPicks;
    if (!unlucky_pick) refuse(*failed, listeners.port, error);
  }
}

std::uint16_t port_of(int socket) {
  Address own = {};
  socklen_t size = sizeof own.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own.storage), &size) != 0) return 0;
  return ntohs(own.port());
}

std::string endpoint(const std::string& host, std::uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::string peer_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getpeername(socket, address, &size) != 0 ||
      ::getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a client";
  }
  return endpoint(host, static_cast<std::uint16_t>(std::stoi(port)));
}

std::string port_owner(std::uint16_t port) {
  const Listening listening = listening_on(port);
  if (port == 0 || listening.inodes.empty()) return "";
  const uid_t user = *listening.users.begin();
  const std::string of_user = user == ::geteuid() ? "" : " of uid " + std::to_string(user);
  const std::string process = process_with_socket(listening.inodes);
  if (!process.empty()) return process + of_user;
  return "a process" + (of_user.empty() ? " that cannot be seen here" : of_user);
}

bool is_strangers_port(std::uint16_t port) {
  const std::set<uid_t> users = listening_on(port).users;
  return std::any_of(users.begin(), users.end(), [](uid_t user) { return user != 0 && user != ::geteuid(); });
}

}  // namespace ddp::rendezvous
