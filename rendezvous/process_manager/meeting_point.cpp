// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/process_manager/meeting_point.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/own_address.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::chrono::seconds kTimeout{60};  // all processes of the starter are there, or it has failed

// Binds a socket to a free port and keeps it open until the process ends. Returns the port.
int reserve_port() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) {
    throw Error(ErrorCode::System, std::string("cannot reserve a port for the other ranks: ") + strerror(errno));
  }
  socket.release();
  return ntohs(any.sin_port);
}

// Returns an address at which other hosts reach this one: what its name leads to, unless that is loopback.
std::string own_reachable_address() {
  const std::string named = own_address_of(host_name());
  if (!named.empty() && !named.starts_with("127.") && named != "::1") return named;
  const std::vector<std::string> all = own_addresses();
  return all.empty() ? "127.0.0.1" : all.front();
}

}  // namespace

MeetingPoint meeting_point(KeyValueStore store, int rank, const std::string& note) {
  std::string own;
  if (rank == 0) own = own_reachable_address() + "," + std::to_string(reserve_port()) + "," + note;
  std::istringstream words(exchange(store, rank, own, kTimeout));
  MeetingPoint point;
  std::string port;
  std::getline(words, point.host, ',');
  std::getline(words, port, ',');
  std::getline(words, point.note);
  const auto number = parse_number<std::uint16_t>(port);
  if (point.host.empty() || !number) {
    throw Error(ErrorCode::Corrupt,
                "rank 0 says \"" + words.str() + "\", which is no address (is it another program?)");
  }
  point.port = *number;
  return point;
}

}  // namespace ddp::rendezvous
