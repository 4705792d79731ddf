// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/platform/meeting_point.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "launcher/platform/rows.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/own_address.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr std::chrono::seconds kTimeout{60};  // all processes of the starter are there, or it has failed

// Binds a socket to a free port and keeps it open until the process ends. Returns the port.
int reserve_port() {
  rendezvous::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) {
    throw Error(ErrorCode::System, std::string("cannot reserve a port for the other nodes: ") + strerror(errno));
  }
  socket.release();
  return ntohs(any.sin_port);
}

// Returns an address at which other hosts reach this one: that of its name, unless it leads to loopback.
std::string own_reachable_address() {
  const std::string named = rendezvous::own_address_of(rendezvous::host_name());
  if (!named.empty() && !named.starts_with("127.") && named != "::1") return named;
  const std::vector<std::string> all = rendezvous::own_addresses();
  return all.empty() ? "127.0.0.1" : all.front();
}

void forget_starter() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view variable = *entry;
    for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_", "HYDRA_"}) {
      if (variable.starts_with(prefix)) names.emplace_back(variable.substr(0, variable.find('=')));
    }
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

}  // namespace

MeetingPoint meeting_point(rendezvous::KeyValueStore store, int node_rank) {
  std::string own;
  if (node_rank == 0) {
    own =
        own_reachable_address() + "," + std::to_string(reserve_port()) + "," + digits_of(rendezvous::Secret::random());
  }
  const std::string found = rendezvous::exchange(store, node_rank, own, kTimeout);
  forget_starter();
  const std::vector<std::string> words = words_of(found, ",");
  const auto port = words.size() == 3 ? rendezvous::parse_number<std::uint16_t>(words[1]) : std::nullopt;
  const auto secret = words.size() == 3 ? rendezvous::secret_of(words[2]) : std::nullopt;
  if (!port || !secret) throw Error(ErrorCode::Corrupt, "node rank 0 runs another version of ddprun");
  return {words[0], *port, secret};
}

}  // namespace ddp::launcher
