// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/peer_user.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <tuple>

#include "rendezvous/net/connection_owner.hpp"
#include "rendezvous/net/listen.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"
#include "tests/support/other_user.hpp"

namespace ddp::rendezvous {
namespace {

using Source = PeerUsers::Source;
using ddp::testing::as_other_user;
using ddp::testing::kOtherUser;

// Both ends of a connection over loopback.
struct Pair {
  Listeners listeners;
  Descriptor client, server;

  int fd() const { return server.get(); }
  ConnectionEnds ends() const {
    const auto found = ends_of(fd());
    REQUIRE(found);
    return *found;
  }
};

sockaddr_in6 mapped(const char* v4, std::uint16_t port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, v4, &address.sin6_addr) == 1);
  return address;
}

void connect(Pair& pair, const std::string& to, bool v6_socket) {
  pair.client = Descriptor(::socket(v6_socket ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v4 = to.find('.') != std::string::npos;
  sockaddr_in v4_address = RawConnection::loopback(pair.listeners.port);
  if (v4) REQUIRE(::inet_pton(AF_INET, to.c_str(), &v4_address.sin_addr) == 1);
  const sockaddr_in6 v6_address = mapped((v4 ? "::ffff:" + to : to).c_str(), pair.listeners.port);
  const auto* address =
      v6_socket ? reinterpret_cast<const sockaddr*>(&v6_address) : reinterpret_cast<const sockaddr*>(&v4_address);
  REQUIRE(::connect(pair.client.get(), address, v6_socket ? sizeof v6_address : sizeof v4_address) == 0);
}

// Connects to a loopback address, by a socket of the same family or, for a v4-mapped address, one of IPv6.
Pair connected(const std::string& to, bool v6_socket, bool other_user = false) {
  Pair pair;
  pair.listeners = listen_on({to}, 0);
  const auto act = [&] { connect(pair, to, v6_socket); };
  other_user ? as_other_user(act) : act();
  pair.server = Descriptor(::accept4(pair.listeners.sockets.front().get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(pair.server);
  return pair;
}

bool is_gone(const PeerUsers::Answer& answer) { return std::holds_alternative<PeerUsers::Gone>(answer); }

void reset(Descriptor& socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket.close();
}

TEST_CASE("peer user: the user of a connection within this machine is known, whatever its addresses",
          "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  for (const auto& [to, v6_socket] :
       std::vector<std::pair<std::string, bool>>{{"127.0.0.1", false}, {"127.0.0.7", true}, {"::1", true}}) {
    INFO("to " << to << (v6_socket ? " with a socket of IPv6" : ""));
    const Pair own = connected(to, v6_socket);
    const auto answer = users.of(own.fd(), own.ends());
    REQUIRE(std::holds_alternative<PeerUsers::Known>(answer));
    CHECK(std::get<PeerUsers::Known>(answer).uid == ::geteuid());
    CHECK(process_with_socket({std::to_string(std::get<PeerUsers::Known>(answer).inode)}, ::geteuid()) ==
          port_owner(own.listeners.port));  // both ends are this process's
  }
}

TEST_CASE("peer user: another user is found as such", "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  for (const auto& [to, v6_socket] :
       std::vector<std::pair<std::string, bool>>{{"127.0.0.1", false}, {"127.0.0.7", true}, {"::1", true}}) {
    INFO("to " << to << (v6_socket ? " with a socket of IPv6" : ""));
    const Pair others = connected(to, v6_socket, true);
    const auto answer = users.of(others.fd(), others.ends());
    REQUIRE(std::holds_alternative<PeerUsers::Known>(answer));
    CHECK(std::get<PeerUsers::Known>(answer).uid == kOtherUser);
  }
}

TEST_CASE("peer user: a peer that only ends its output is still there", "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  const Pair own = connected("127.0.0.1", false);
  ::shutdown(own.client.get(), SHUT_WR);
  CHECK(std::holds_alternative<PeerUsers::Known>(users.of(own.fd(), own.ends())));
}

TEST_CASE("peer user: a peer that has closed its end has no user, whatever the kernel says of it",
          "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  Pair closed = connected("127.0.0.1", false);
  closed.client.close();
  CHECK(is_gone(users.of(closed.fd(), closed.ends())));
  Pair cut = connected("127.0.0.1", false);
  const ConnectionEnds ends = cut.ends();
  reset(cut.client);
  CHECK(is_gone(users.of(cut.fd(), ends)));
  CHECK_FALSE(ends_of(cut.fd()));
  const Pair next = connected("127.0.0.1", false);  // neither made it give up this source
  CHECK(std::holds_alternative<PeerUsers::Known>(users.of(next.fd(), next.ends())));
  CHECK(users.why_not().empty());
}

TEST_CASE("peer user: what took over the port of a peer that has gone is not taken for it",
          "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  const bool listens = GENERATE(true, false);  // else it connects, with the same ends as before
  bool has_port = false;
  for (int attempt = 0; attempt < 100 && !has_port; ++attempt) {  // another process of this machine may be faster
    Pair first = connected("127.0.0.1", false);
    const ConnectionEnds ends = first.ends();
    reset(first.client);
    const Descriptor next(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in from = RawConnection::loopback(ends.peer.port), to = RawConnection::loopback(ends.local.port);
    if (::bind(next.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) continue;
    has_port = (listens ? ::listen(next.get(), 1)
                        : ::connect(next.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to)) == 0;
    CHECK(is_gone(users.of(first.fd(), ends)));
  }
  CHECK(has_port);
}

TEST_CASE("peer user: a machine says whose its end of a connection is, also if the other end's address was translated",
          "[rendezvous][integration]") {
  PeerUsers users(GENERATE(Source::SockDiag, Source::ProcNet));
  const Pair link = connected("127.0.0.1", false);
  const auto owner = [&](const ConnectionEnds& ends) {
    const auto answer = read_owner_answer(owner_answer(users, connection_name(ends), link.ends()));
    REQUIRE(answer);
    CHECK(answer->connection == connection_name(ends));
    return answer->owner;
  };
  using Owner = OwnerAnswer::Owner;
  for (const std::string to : {"127.0.0.7", "::1"}) {
    Pair own = connected(to, to == "::1");
    const Pair others = connected(to, to == "::1", true);
    CHECK(owner(own.ends()) == Owner::Own);
    CHECK(owner(others.ends()) == Owner::Other);
    ConnectionEnds translated = own.ends(), of_other = others.ends(), to_other_port = own.ends();
    translated.local.address.s6_addr[14] = of_other.local.address.s6_addr[14] = 9;
    to_other_port.local.port = 1;
    CHECK(owner(translated) == Owner::Own);
    CHECK(owner(of_other) == Owner::Other);
    CHECK(owner(to_other_port) == Owner::None);
    const ConnectionEnds closed = own.ends();
    own.client.close();
    CHECK(owner(closed) == Owner::None);
  }
}

TEST_CASE("peer user: whose a connection is cannot be told without a source, or before one has shown anything",
          "[rendezvous][integration]") {
  PeerUsers none(Source::None), unproven;
  ConnectionEnds ends = {};
  ends.local = {mapped("::ffff:198.51.100.77", 0).sin6_addr, 29500};
  ends.peer = {mapped("::ffff:198.51.100.78", 0).sin6_addr, 4711};
  CHECK(owner_answer(none, connection_name(ends), {}) == "198.51.100.78 4711 198.51.100.77 29500 unknown");
  CHECK(owner_answer(unproven, connection_name(ends), {}) == "198.51.100.78 4711 198.51.100.77 29500 unknown");
  for (const std::string nonsense : {"", "a b c d", "198.51.100.78 4711", "198.51.100.78 65536 198.51.100.77 1"}) {
    CHECK(owner_answer(none, nonsense, {}).empty());
    CHECK_FALSE(read_owner_answer(nonsense));
  }
  CHECK(read_owner_answer("fd00::2 1 fd00::1 2 other alice (uid 7)")->user == "alice (uid 7)");
  CHECK(read_owner_answer("fd00::2 1 fd00::1 2")->owner == OwnerAnswer::Owner::Unknown);
}

TEST_CASE("peer user: without any source nothing is said, with the reason", "[rendezvous][integration]") {
  const Pair own = connected("127.0.0.1", false);
  PeerUsers users(Source::None);
  CHECK(std::holds_alternative<PeerUsers::CannotTell>(users.of(own.fd(), own.ends())));
}

TEST_CASE("peer user: a connection from another address is elsewhere", "[rendezvous][unit]") {
  PeerUsers users;
  ConnectionEnds ends = {};
  ends.local = {mapped("::ffff:198.51.100.77", 0).sin6_addr, 29500};
  ends.peer = {mapped("::ffff:198.51.100.78", 0).sin6_addr, 4711};
  CHECK(std::holds_alternative<PeerUsers::Elsewhere>(users.of(-1, ends)));
  ends.peer.address = ends.local.address;  // from the address it goes to
  CHECK(is_gone(users.of(-1, ends)));
}

TEST_CASE("peer user: users are named as /etc/passwd does", "[rendezvous][unit]") {
  CHECK(user_name(0) == "root (uid 0)");
  CHECK(user_name(4'000'000'000) == "uid 4000000000");
}

}  // namespace
}  // namespace ddp::rendezvous
