// SPDX-License-Identifier: BSD-3-Clause
// Parts of collectives/host/nodes by themselves.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "collectives/host/nodes/layout.hpp"
#include "collectives/host/nodes/link.hpp"
#include "rendezvous/net/listen.hpp"

using namespace ddp::collectives;
using Clock = std::chrono::steady_clock;

TEST_CASE("layout: nodes are in the order of their first ranks, and the smallest node says how many lanes there are",
          "[collectives][unit]") {
  const Layout layout({0, 1, 0, 1, 0}, 3);
  CHECK(layout.nodes == std::vector<std::vector<std::uint32_t>>{{0, 2, 4}, {1, 3}});
  CHECK(layout.in_order == std::vector<std::uint32_t>{0, 2, 4, 1, 3});
  CHECK(layout.places == std::vector<std::uint32_t>{0, 3, 5});
  CHECK(layout.lanes == 2);
  CHECK(layout.node == 1);
  CHECK(layout.index == 1);
  CHECK_FALSE(layout.is_contiguous);
  CHECK(Layout({0, 0, 2}, 0).is_contiguous);
}

TEST_CASE("link: opens only if what listens there knows the secret of the group", "[collectives][integration]") {
  const LinkSecrets secrets(std::string(2 * LinkSecrets::kBytes, 's'));
  for (const char answer : {'s', 'x'}) {
    const ddp::rendezvous::Listeners listeners = ddp::rendezvous::listen_on({"127.0.0.1"}, 0);
    Link link({"127.0.0.1", listeners.port}, Hello(), secrets);
    pollfd event = {listeners.sockets[0].get(), POLLIN, 0};
    REQUIRE(poll(&event, 1, 60'000) == 1);
    const ddp::rendezvous::Descriptor accepted(accept(listeners.sockets[0].get(), nullptr, nullptr));
    const std::string text(LinkSecrets::kBytes, answer);
    REQUIRE(write(accepted.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!link.is_open() && !link.is_broken() && Clock::now() < deadline) {
      event = {link.descriptor(), link.events_to_open(), 0};
      poll(&event, 1, 1000);
    }
    CHECK(link.is_open() == (answer == 's'));
    CHECK(link.is_broken() == (answer == 'x'));
  }
}

TEST_CASE("link: a rank hears only who knows the secret of the group", "[collectives][integration]") {
  const LinkSecrets secrets(std::string(2 * LinkSecrets::kBytes, 's'));
  for (const char secret : {'s', 'x'}) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    Stranger stranger{ddp::rendezvous::Descriptor(ends[0])};
    const ddp::rendezvous::Descriptor who_connects(ends[1]);
    Hello hello;
    hello.secret.fill('s');
    hello.secret.back() = secret;
    REQUIRE(write(who_connects.get(), &hello, sizeof hello) == static_cast<ssize_t>(sizeof hello));
    const bool is_known = secret == 's';
    CHECK(stranger.hear(secrets) == (is_known ? Stranger::Said::Hello : Stranger::Said::SomethingElse));
  }
}
