// SPDX-License-Identifier: BSD-3-Clause
// New links at the coordinator over loopback, from agents and from strangers. Tests that do not set another limit stay
// far below the default of 5 s.
#include "rendezvous/link/acceptor.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "tests/rendezvous/link/loop.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous {
namespace {

using namespace std::chrono_literals;

const KeyPair kKey = KeyPair::random();
const std::string kPreface = AgentHandshake("", {}, {}, kKey).preface();
const std::string kSecretPreface = AgentHandshake("", kSecret, {}, kKey).preface();

RawConnection connected(const LinkCoordinator& coordinator, std::string_view bytes) {
  RawConnection raw = RawConnection::to(coordinator.server.port());
  REQUIRE(raw.send(bytes));
  return raw;
}

// Returns the coordinator's preface after an agent's was sent.
std::string preface_from(LinkLoop& loop, RawConnection& raw) {
  const std::string preface = loop.receive(raw, kLinkPrefaceBytes);
  REQUIRE(preface.size() == kLinkPrefaceBytes);
  return preface;
}

// Returns the keys of a link between kKey and the coordinator with this preface.
LinkKeys keys_with(const std::string& preface, const std::optional<Secret>& secret) {
  PublicKey key;
  std::copy_n(preface.end() - key.size(), key.size(), key.begin());
  return *agree(kKey, key, secret, (secret ? kSecretPreface : kPreface) + preface);
}

std::string proof_for(const std::string& preface) {
  const Proof proof = keys_with(preface, kSecret).of_agent;
  return {proof.begin(), proof.end()};
}

bool ends(LinkLoop& loop, RawConnection& raw) {
  return loop.until([&raw] { return raw.has_ended(); });
}

TEST_CASE("acceptor: an agent's first message may come with the end of its proof", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.membership = kSecret});
  AgentState state;
  state.incarnation = "b";
  state.host = "node-b";
  RawConnection raw = connected(coordinator, kSecretPreface);
  const std::string preface = preface_from(loop, raw);
  LinkCipher cipher(LinkRole::Agent, keys_with(preface, kSecret));
  REQUIRE(raw.send(proof_for(preface) + cipher.seal(encode(state))));
  REQUIRE(loop.until([&] { return coordinator.agents.size() == 1 && coordinator.agents[0].states.size() == 1; }));
  CHECK(coordinator.agents[0].states[0].host == "node-b");
  CHECK(coordinator.agents[0].address == "127.0.0.1");
  CHECK(coordinator.lines.empty());
}

TEST_CASE("acceptor: a handshake with a secret may come byte by byte", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.membership = kSecret});
  RawConnection raw = connected(coordinator, "");
  for (const char byte : kSecretPreface) {
    REQUIRE(raw.send({&byte, 1}));
    loop.settle();
  }
  const std::string preface = preface_from(loop, raw);
  for (const char byte : proof_for(preface)) {
    REQUIRE(raw.send({&byte, 1}));
    loop.settle();
  }
  const Proof expected = keys_with(preface, kSecret).of_coordinator;
  CHECK(loop.receive(raw, 32) == std::string(expected.begin(), expected.end()));
  CHECK(loop.until([&] { return coordinator.agents.size() == 1; }));
}

TEST_CASE("acceptor: strangers lose their connection, and are logged once a second", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.membership = kSecret, .limit = 50ms});
  const auto begun = std::chrono::steady_clock::now();

  RawConnection garbage = connected(coordinator, "\xddGET / HTTP/1.1 and more");
  CHECK(ends(loop, garbage));
  REQUIRE(coordinator.lines.size() == 1);
  CHECK_THAT(coordinator.lines[0], Catch::StartsWith("agent link: refused 127.0.0.1:"));
  CHECK_THAT(coordinator.lines[0],
             Catch::EndsWith(": it is not a ddprun agent (first bytes: \"\\xddGET / HTTP/1.1 \")"));

  RawConnection wrong = connected(coordinator, kSecretPreface);
  preface_from(loop, wrong);
  REQUIRE(wrong.send(std::string(32, 'p')));
  CHECK(loop.receive(wrong, 33) == std::string(32, '\0'));  // and then the end

  // A proof that an agent sent once is worth nothing a second time.
  RawConnection agent = connected(coordinator, kSecretPreface);
  const std::string proof = proof_for(preface_from(loop, agent));
  REQUIRE(agent.send(proof));
  CHECK(loop.receive(agent, 32).size() == 32);
  CHECK(coordinator.agents.size() == 1);
  RawConnection replay = connected(coordinator, kSecretPreface + proof);
  preface_from(loop, replay);
  CHECK(loop.receive(replay, 33) == std::string(32, '\0'));

  RawConnection first_byte = connected(coordinator, kSecretPreface.substr(0, 1));
  RawConnection half = connected(coordinator, kSecretPreface.substr(0, 20));
  RawConnection unproved = connected(coordinator, kSecretPreface);
  RawConnection half_proof = connected(coordinator, kSecretPreface);
  REQUIRE(half_proof.send(proof.substr(0, 31)));
  for (RawConnection* stranger : {&unproved, &half_proof}) preface_from(loop, *stranger);
  for (RawConnection* stranger : {&first_byte, &half, &unproved, &half_proof}) CHECK(ends(loop, *stranger));

  CHECK(coordinator.agents.size() == 1);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - begun).count();
  CHECK(coordinator.lines.size() <= static_cast<std::size_t>(seconds));
}

TEST_CASE("acceptor: an agent of another version is answered before it is closed", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {});
  RawConnection raw = connected(coordinator, from_hex("dd 64647072756e 09") + std::string(200, 'x'));
  AgentHandshake agent("node0:29400", {});
  std::string answer;
  const HandshakeVerdict verdict = agent.feed(loop.receive(raw, kLinkPrefaceBytes), answer);
  CHECK(std::holds_alternative<HandshakeDone>(verdict));  // it is this version's own preface
  CHECK(ends(loop, raw));
  REQUIRE(coordinator.lines.size() == 1);
  CHECK_THAT(coordinator.lines[0], Catch::Contains("another version of ddprun (its agent link is version 9"));
}

TEST_CASE("acceptor: half a handshake ends at its deadline, others go on", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.limit = 20ms});
  RawConnection half = connected(coordinator, kPreface.substr(0, 10));
  CHECK(ends(loop, half));
  REQUIRE(coordinator.lines.size() == 1);
  CHECK_THAT(coordinator.lines[0], Catch::EndsWith(": only half a handshake in 20 ms"));
  const RawConnection agent = connected(coordinator, kPreface);
  CHECK(loop.until([&] { return coordinator.agents.size() == 1; }));
}

TEST_CASE("acceptor: one handshake too many ends the oldest", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.max_pending = 3});
  std::vector<RawConnection> halves;
  for (std::uint64_t i = 0; i < 5; ++i) {
    halves.push_back(connected(coordinator, kPreface.substr(0, 10)));
    REQUIRE(loop.until([&] { return coordinator.server.statistics().agent_links == i + 1; }));
    loop.settle();
  }
  CHECK(ends(loop, halves[0]));
  CHECK(ends(loop, halves[1]));
  const RawConnection agent = connected(coordinator, kPreface);
  CHECK(loop.until([&] { return coordinator.agents.size() == 1; }));
  CHECK(ends(loop, halves[2]));
  CHECK_FALSE(halves[3].has_ended());
  CHECK_FALSE(halves[4].has_ended());
  CHECK_THAT(coordinator.lines.at(0), Catch::EndsWith(": too many handshakes at once"));
}

TEST_CASE("acceptor: of too many handshakes the oldest of the busiest address is ended", "[rendezvous][integration]") {
  LinkLoop loop;
  LinkCoordinator coordinator(loop, {.max_pending = 3});
  RawConnection slow = connected(coordinator, kPreface.substr(0, 10));
  std::vector<RawConnection> strangers;
  for (int i = 0; i < 4; ++i) {
    RawConnection& stranger = strangers.emplace_back(RawConnection::unconnected());
    sockaddr_in from = RawConnection::loopback(0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 8);
    REQUIRE(::bind(stranger.fd(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
    REQUIRE(stranger.connect(coordinator.server.port()));
    REQUIRE(stranger.send(kPreface.substr(0, 10)));
    REQUIRE(loop.until([&] { return coordinator.server.statistics().agent_links == strangers.size() + 1; }));
    loop.settle();
  }
  CHECK(ends(loop, strangers[0]));
  CHECK(ends(loop, strangers[1]));
  REQUIRE(slow.send(kPreface.substr(10)));
  CHECK(loop.until([&] { return coordinator.agents.size() == 1; }));
}

TEST_CASE("acceptor: a thousand half handshakes do not delay a good one", "[rendezvous][integration]") {
  const rlimit before = raise_file_limit();
  std::size_t count = 1000;
  if (rlimit now = {}; ::getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur < 5000) {
    WARN("only " << now.rlim_cur << " file descriptors: 200 half handshakes");
    count = 200;
  }
  {
    LinkLoop loop;
    LinkCoordinator coordinator(loop, {.membership = kSecret});
    std::vector<RawConnection> halves;
    for (std::size_t i = 0; i < count; ++i) halves.push_back(connected(coordinator, kSecretPreface));
    for (RawConnection& half : halves) preface_from(loop, half);  // all handshakes are under way
    RawConnection agent = connected(coordinator, kSecretPreface);
    REQUIRE(agent.send(proof_for(preface_from(loop, agent))));
    CHECK(loop.receive(agent, 32).size() == 32);
    CHECK(coordinator.agents.size() == 1);
    std::size_t ended = 0;
    for (RawConnection& half : halves) ended += half.has_ended();
    CHECK(ended == 0);  // so it was not their deadline that made room
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("acceptor: no descriptor is left behind, whenever it ends", "[rendezvous][integration]") {
  std::size_t before = 0;
  for (int i = 0; i < 3; ++i) {
    {
      LinkLoop loop;
      LinkCoordinator coordinator(loop, {.membership = kSecret, .max_pending = 2});
      std::vector<RawConnection> raw;
      for (int k = 0; k < 4; ++k) raw.push_back(connected(coordinator, kSecretPreface));  // two too many
      for (RawConnection& each : raw) loop.receive(each, kLinkPrefaceBytes);
      raw.push_back(connected(coordinator, kSecretPreface));
      REQUIRE(raw.back().send(proof_for(preface_from(loop, raw.back()))));
      CHECK(loop.receive(raw.back(), 32).size() == 32);
      raw.push_back(connected(coordinator, "\xddno"));
      CHECK(ends(loop, raw.back()));
      // Handed to the acceptor, but its loop never runs.
      raw.push_back(connected(coordinator, kSecretPreface));
      const auto handed_over = [&] { return coordinator.server.statistics().agent_links; };
      while (handed_over() < raw.size()) {
      }
    }
    if (i == 0) before = open_descriptors();  // the first round has opened what stays
  }
  CHECK(open_descriptors() == before);
}

}  // namespace
}  // namespace ddp::rendezvous
