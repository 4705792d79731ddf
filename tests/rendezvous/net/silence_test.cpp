// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/silence.hpp"

#include <arpa/inet.h>

#include <catch2/catch.hpp>

namespace ddp::rendezvous {
namespace {

using Ids = std::vector<std::uint64_t>;

OpenConnection silent(std::uint64_t id, Standing standing, const std::string& share) {
  return {.id = id, .is_silent = true, .standing = standing, .share = share};
}
OpenConnection speaking(std::uint64_t id, const std::string& share) {
  return {.id = id, .is_silent = false, .standing = Standing::Member, .share = share};
}

in6_addr v6(const char* text) {
  in6_addr address = {};
  REQUIRE(::inet_pton(AF_INET6, text, &address) == 1);
  return address;
}

TEST_CASE("silence: of the connections that say nothing the oldest of the largest share is closed",
          "[rendezvous][unit]") {
  CHECK(choose_silent({}).empty());
  CHECK(choose_silent({silent(1, Standing::Member, "a"), silent(2, Standing::Member, "b"),
                       silent(3, Standing::Member, "b")}) == Ids{2});
  CHECK(choose_silent({silent(9, Standing::Member, "a"), silent(4, Standing::Member, "a")}) == Ids{4});
}

TEST_CASE("silence: a connection that speaks vouches for a silent one from its address", "[rendezvous][unit]") {
  CHECK(choose_silent({speaking(1, "a"), silent(2, Standing::Member, "a")}).empty());
  CHECK(choose_silent({silent(1, Standing::Member, "a"), speaking(2, "a"), silent(3, Standing::Member, "a")}) ==
        Ids{1});
  CHECK(choose_silent({speaking(1, "a"), silent(2, Standing::Member, "b")}) == Ids{2});
}

TEST_CASE("silence: connections that speak are never closed", "[rendezvous][unit]") {
  CHECK(choose_silent({speaking(1, "a"), speaking(2, "a"), speaking(3, "b")}).empty());
}

TEST_CASE("silence: strangers go before members, and members before processes of the own user", "[rendezvous][unit]") {
  const OpenConnection stranger = silent(9, Standing::Stranger, "s");
  const OpenConnection member = silent(2, Standing::Member, "c");
  const OpenConnection own = silent(1, Standing::OwnUser, "o");
  CHECK(choose_silent({own, member, silent(3, Standing::Member, "c"), stranger}) == Ids{9});
  CHECK(choose_silent({own, member}) == Ids{2});
  CHECK(choose_silent({own}) == Ids{1});
  CHECK(choose_silent({speaking(1, "s"), stranger}) == Ids{9});  // nobody vouches for a stranger
}

TEST_CASE("silence: members and the own user are given time to speak, others are not", "[rendezvous][unit]") {
  for (const Standing standing : {Standing::Stranger, Standing::Anybody, Standing::Member, Standing::OwnUser}) {
    OpenConnection fresh = silent(1, standing, "a");
    fresh.is_new = true;
    CHECK(choose_silent({fresh}).empty() == (standing >= Standing::Member));
  }
}

TEST_CASE("silence: of many, a sixteenth is closed at a time", "[rendezvous][unit]") {
  std::vector<OpenConnection> many;
  for (std::uint64_t id = 1; id <= 160; ++id) many.push_back(silent(id, Standing::Stranger, id % 2 == 0 ? "a" : "b"));
  CHECK(choose_silent(many) == Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE("silence: an IPv4 address is a share, of IPv6 a network is", "[rendezvous][unit]") {
  CHECK(share_of(v6("fd00::1")) == share_of(v6("fd00::ffff:2")));
  CHECK(share_of(v6("fd00::1")) != share_of(v6("fd00:0:0:1::1")));
  CHECK(share_of(v6("::ffff:10.0.0.1")) != share_of(v6("::ffff:10.0.0.2")));
}

}  // namespace
}  // namespace ddp::rendezvous
