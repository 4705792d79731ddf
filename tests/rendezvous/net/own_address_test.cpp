// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/addresses/own_address.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <string>

#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/listen.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"

namespace ddp::rendezvous {
namespace {

TEST_CASE("addresses: each has one form, in whatever form it was written", "[rendezvous][unit]") {
  CHECK(numeric_address("10.0.0.7") == "10.0.0.7");
  CHECK(numeric_address("::ffff:10.0.0.7") == "10.0.0.7");
  CHECK(numeric_address("::FFFF:0a00:0007") == "10.0.0.7");
  CHECK(numeric_address("FD00:0:0:0::2") == "fd00::2");
  CHECK(numeric_address("::1") == "::1");
  for (const char* text : {"", "localhost", "[::1]", "10.0.0.7:80", "node-b", "10.0.0.256", "::ffff:10.0.0.7:1"}) {
    CHECK(numeric_address(text).empty());
  }
}

TEST_CASE("addresses: loopback is 127.0.0.0/8 and ::1", "[rendezvous][unit]") {
  for (const char* text : {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"}) {
    CHECK(is_loopback(text));
  }
  for (const char* text : {"", "localhost", "10.0.0.1", "128.0.0.1", "::", "0.0.0.0", "fe80::1", "::ffff:10.0.0.1"}) {
    CHECK_FALSE(is_loopback(text));
  }
}

TEST_CASE("addresses: this machine's own are numeric, can be listened on, and are never loopback",
          "[rendezvous][integration]") {
  for (const std::string& address : own_addresses()) {
    INFO(address);
    CHECK(numeric_address(address) == address);
    CHECK_FALSE(is_loopback(address));
    CHECK_FALSE(address.starts_with("fe80:"));
    CHECK_NOTHROW(listen_on({address}, 0));
    CHECK(is_own_host(address, ""));
  }
}

TEST_CASE("addresses: a host is this machine by name, by address, or because the user says so",
          "[rendezvous][integration]") {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string own = name;
  CHECK(is_own_host(own, ""));
  CHECK(is_own_host(own.substr(0, own.find('.')), ""));
  std::transform(own.begin(), own.end(), own.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  CHECK(is_own_host(own, ""));
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3"}) CHECK(is_own_host(host, ""));

  CHECK_FALSE(is_own_host("192.0.2.1", ""));  // reserved for documentation
  CHECK_FALSE(is_own_host("2001:db8::1", ""));
  CHECK(is_own_host("192.0.2.1", "192.0.2.1"));
  CHECK_FALSE(is_own_host("192.0.2.1", "192.0.2.2"));
  CHECK_FALSE(is_own_host("", ""));
  CHECK_FALSE(is_own_host("not a name", ""));
  CHECK(whose_host("not a name", "") == HostIs::Unresolved);
  for (const char* host : {"localhost", "192.0.2.1", "2001:db8::1"}) {
    CHECK(whose_host(host, "") != HostIs::Unresolved);
  }
}

TEST_CASE("listening: the addresses that a host means, and all where that cannot be known",
          "[rendezvous][integration]") {
  const std::vector<std::string> all = {"0.0.0.0", "::"}, local = {"127.0.0.1", "::1"};
  CHECK(addresses_for("127.0.0.1", "") == local);
  CHECK(addresses_for("localhost", "") == all);  // other hosts may have a better name for this one
  CHECK(addresses_for("192.0.2.1", "") == all);  // perhaps what others call this machine
  CHECK(addresses_for("127.0.0.1", "192.0.2.1") == all);
  CHECK(addresses_for("no.such.name.invalid", "") == all);
  for (const std::string& own : own_addresses()) {
    CHECK(addresses_for(own, "") == std::vector<std::string>{own});
    CHECK(addresses_for(own, own) == std::vector<std::string>{own});
  }
}

TEST_CASE("listening: every address of the machine, of both families, at one port", "[rendezvous][integration]") {
  const Listeners listeners = listen_on({"0.0.0.0", "::"}, 0);  // :: is left out where there is no IPv6
  REQUIRE((listeners.sockets.size() == 1 || listeners.sockets.size() == 2));
  RawConnection v4 = RawConnection::unconnected();
  CHECK(v4.connect(listeners.port));
  CHECK(peer_address(v4.fd()) == "127.0.0.1");
  CHECK(local_address(v4.fd()) == "127.0.0.1");
  if (listeners.sockets.size() == 2) {
    const RawConnection v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(listeners.port);
    address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    CHECK(::connect(v6.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    CHECK(peer_address(v6.fd()) == "::1");
  }
  CHECK(peer_address(-1).empty());
}

}  // namespace
}  // namespace ddp::rendezvous
