// SPDX-License-Identifier: BSD-3-Clause
// Which of its addresses a rank publishes, on hosts of every kind. init_test shows that other ranks reach it there.
// This test is exact, since a backend may connect although an address is wrong (in Gloo, the side with the larger
// address makes the connection).
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/hosts.hpp"
#include "tests/support/ports.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::testing::Hosts;
using ddp::testing::Process;
using ddp::testing::TemporaryFolder;
using Words = std::vector<std::string>;
using Networks = std::vector<std::vector<int>>;

namespace {

// Returns what each rank prints, with two ranks on each host.
Words addresses(const Hosts& hosts, const std::string& place, const std::map<std::string, std::string>& more = {}) {
  Process::Options options;
  options.environment = more;
  const int size = 2 * hosts.count();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const std::string who = "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(size);
    ranks.push_back(std::make_unique<Process>(hosts.on(rank / 2, {ADDRESS_WORKER, place + who}), options));
  }
  Words said;
  for (const auto& rank : ranks) {
    said.push_back(rank->wait().out);
    if (!said.back().empty()) said.back().pop_back();
  }
  CHECK(hosts.all_gone());
  return said;
}

Words addresses_by_file(const Hosts& hosts, const std::map<std::string, std::string>& more = {}) {
  const TemporaryFolder folder;
  return addresses(hosts, "file://" + (folder / "store"), more);
}

std::string tcp(const std::string& host) { return "tcp://" + host + ":" + std::to_string(ddp::testing::free_port()); }

Words twice(const std::string& first, const std::string& second) { return {first, first, second, second}; }

}  // namespace

TEST_CASE("address: the one of the connection to the store, if others can reach it", "[runtime][integration]") {
  const Hosts hosts(2, {.networks = {{0, 1}, {0, 1}}});
  CHECK(addresses(hosts, tcp(Hosts::address(0, 1))) == twice("10.7.1.1", "10.7.1.2"));
}

TEST_CASE("address: the one that leads to the other hosts, where a rank reaches the store over loopback",
          "[runtime][integration]") {
  const Hosts hosts(2, {.networks = {{0, 1}, {1}}, .debian_names = true});
  CHECK(addresses(hosts, tcp("node0")) == twice("10.7.1.1", "10.7.1.2"));
}

TEST_CASE("address: loopback where all ranks are on one host", "[runtime][integration]") {
  const Hosts hosts(1, {.debian_names = true});
  CHECK(addresses(hosts, tcp("node0")) == Words{"127.0.0.1", "127.0.0.1"});
  CHECK(addresses_by_file(hosts) == Words{"127.0.0.1", "127.0.0.1"});
  CHECK(addresses(hosts, tcp("[::1]")) == Words{"::1", "::1"});
}

TEST_CASE("address: without a connection, the one in the network that the hosts share", "[runtime][integration]") {
  const bool v6 = GENERATE(false, true);
  const Hosts hosts(2, {.v4 = !v6, .v6 = v6, .networks = {{0, 1}, {2, 1}}, .debian_names = true});
  CHECK(addresses_by_file(hosts) == (v6 ? twice("fd07:1::1", "fd07:1::2") : twice("10.7.1.1", "10.7.1.2")));
}

TEST_CASE("address: without a connection, the one of the default route if any would do", "[runtime][integration]") {
  const Hosts hosts(2, {.networks = {{0, 1}, {0, 1}}});
  CHECK(addresses_by_file(hosts) == twice("10.7.0.1", "10.7.0.2"));
  for (const int host : {0, 1}) {
    REQUIRE(ddp::testing::run(hosts.on(host, {"ip", "route", "add", "default", "via", "10.7.1.99"})).code == 0);
  }
  CHECK(addresses_by_file(hosts) == twice("10.7.1.1", "10.7.1.2"));
}

TEST_CASE("address: the one of the named interface, in the family of the store's address", "[runtime][integration]") {
  const Hosts hosts(2, {.v6 = true, .networks = {{0, 1}, {0, 1}}});
  CHECK(addresses_by_file(hosts, {{"GLOO_SOCKET_IFNAME", "eth1"}}) == twice("10.7.1.1", "10.7.1.2"));
  CHECK(addresses_by_file(hosts, {{"GLOO_SOCKET_IFNAME", "eth1"}, {"DDP_SOCKET_IFNAME", "eth0"}}) ==
        twice("10.7.0.1", "10.7.0.2"));
  CHECK(addresses(hosts, tcp("[fd07::1]"), {{"DDP_SOCKET_IFNAME", "none,eth1"}}) == twice("fd07:1::1", "fd07:1::2"));
}

TEST_CASE("address: an unknown interface is an error that names it", "[runtime][integration]") {
  const Hosts hosts(1);
  for (const std::string& said : addresses_by_file(hosts, {{"DDP_SOCKET_IFNAME", "eth7"}})) {
    CHECK_THAT(said, Contains("no network interface eth7 with an address on this host (DDP_SOCKET_IFNAME"));
  }
}

TEST_CASE("address: a host with only loopback gets an error if ranks are on other hosts", "[runtime][integration]") {
  const Hosts hosts(2, {.networks = {{}, {0}}});
  CHECK_THAT(
      addresses_by_file(hosts).front(),
      Contains("this host has only loopback addresses, but there are ranks on other hosts: set DDP_SOCKET_IFNAME"));
}
