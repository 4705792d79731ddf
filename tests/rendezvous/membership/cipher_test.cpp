// SPDX-License-Identifier: BSD-3-Clause
// The keys of a link and the sealing of its frames, against values that Python computed and against tampering.
#include "rendezvous/membership/cipher.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rendezvous/link/codec.hpp"
#include "tests/rendezvous/membership/known_secrets.hpp"
#include "tests/rendezvous/store/hex.hpp"

namespace ddp::rendezvous {
namespace {

const KeyPair kAgent(secret_of(0xaa)), kCoordinator(secret_of(0xcc));

LinkKeys keys() { return *agree(kAgent, kCoordinator.public_key(), counting_secret(), "both prefaces"); }

// A frame whose JSON is this text; the cipher does not look at it.
std::string frame(const std::string& text) {
  return std::string(2, '\0') + static_cast<char>(text.size() >> 8) + static_cast<char>(text.size() & 0xff) + text;
}

// Opens bytes of the agent in pieces. Returns the frames, with "!" behind them where the bytes were not genuine.
std::string opened(const std::string& bytes, std::size_t piece) {
  LinkCipher coordinator(LinkRole::Coordinator, keys());
  std::string frames;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!coordinator.open(std::string_view(bytes).substr(at, piece), frames)) return frames + "!";
  }
  return frames;
}

TEST_CASE("cipher: keys and proofs follow from both keys, the secret and the prefaces as the header says",
          "[rendezvous][unit]") {
  // tests/rendezvous/membership/handshake_test.cpp has the prefaces. Values of Python: X25519 by RFC 7748, then hmac.
  const std::string job = "1011121314151617", none(16, '0');
  const std::string agents = "dd64647072756e0301" + none + hex_of(kAgent.public_key());
  const std::string coordinators = "dd64647072756e0301" + job + hex_of(kCoordinator.public_key());
  CHECK(hex_of(kAgent.public_key()) == "14ca9e4d387bccf35746e0407daaacc6b28a4f8445ef5a5158894db983e24070");
  CHECK(hex_of(kCoordinator.public_key()) == "e8980c4ea5ebf8fb6c281098b75cdd32862922a638778251979b6d322ed7e02e");
  const auto of_agent = agree(kAgent, kCoordinator.public_key(), counting_secret(), from_hex(agents + coordinators));
  const auto of_coordinator =
      agree(kCoordinator, kAgent.public_key(), counting_secret(), from_hex(agents + coordinators));
  REQUIRE((of_agent && of_coordinator));
  for (const LinkKeys& each : {*of_agent, *of_coordinator}) {
    CHECK(hex_of(each.of_agent) == "c6d79b4da21f1378bf2fc3d818ca66a180d86e6da486ddadb349e077aed585f2");
    CHECK(hex_of(each.of_coordinator) == "6d00e820cc387e4aed9cd470a09c6b0e5fd907e75410fe9f04753d5d1b338941");
    CHECK(hex_of(each.agents_frames.bytes()) == "0ae745a0b6e7dbf380d8162f3d677c1cf52cca4131cc8b380dc9e6adfc8d591e");
    CHECK(hex_of(each.coordinators_frames.bytes()) ==
          "cc8d22428eec637fcb0c6331083dd852c52e053f9fc8aee34bdddec52f43e1ea");
  }
}

TEST_CASE("cipher: another secret, key or transcript gives other keys", "[rendezvous][unit]") {
  const LinkKeys ours = keys();
  const std::vector<std::optional<LinkKeys>> others = {
      agree(kAgent, kCoordinator.public_key(), secret_of(1), "both prefaces"),
      agree(kAgent, kCoordinator.public_key(), std::nullopt, "both prefaces"),
      agree(kAgent, kCoordinator.public_key(), counting_secret(), "Both prefaces"),
      agree(kAgent, KeyPair::random().public_key(), counting_secret(), "both prefaces"),
      agree(KeyPair::random(), kCoordinator.public_key(), counting_secret(), "both prefaces"),
  };
  for (const auto& other : others) {
    REQUIRE(other);
    CHECK(other->of_agent != ours.of_agent);
    CHECK(other->of_coordinator != ours.of_coordinator);
    CHECK_FALSE(other->agents_frames == ours.agents_frames);
    CHECK_FALSE(other->coordinators_frames == ours.coordinators_frames);
  }
  CHECK_FALSE(ours.agents_frames == ours.coordinators_frames);
}

TEST_CASE("cipher: a key that makes the result known to everybody is refused", "[rendezvous][unit]") {
  PublicKey one{};
  one[0] = 1;
  CHECK_FALSE(agree(kAgent, PublicKey{}, counting_secret(), ""));
  CHECK_FALSE(agree(kAgent, one, counting_secret(), ""));
}

TEST_CASE("cipher: proofs are compared whole", "[rendezvous][unit]") {
  const Proof proof = keys().of_agent;
  std::string bytes(proof.begin(), proof.end());
  CHECK(is_same(proof, bytes));
  CHECK_FALSE(is_same(proof, bytes.substr(1)));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  CHECK_FALSE(is_same(proof, bytes));
}

TEST_CASE("cipher: sealed frames open in order, however the bytes are split, and show nothing", "[rendezvous][unit]") {
  LinkCipher agent(LinkRole::Agent, keys());
  const std::string frames = frame("the host is node0") + encode(Heartbeat{}) + frame(std::string(300, 'x'));
  std::string sealed = agent.seal(frame("the host is node0"));
  sealed += agent.seal(encode(Heartbeat{}));
  sealed += agent.seal(frame(std::string(300, 'x')));
  CHECK(sealed.size() == frames.size() + 24 + 3 * kSealBytes);
  CHECK(sealed.find("node0") == std::string::npos);
  CHECK(sealed.find("xxxx") == std::string::npos);
  for (std::size_t piece = 1; piece <= sealed.size(); ++piece) {
    INFO(piece);
    REQUIRE(opened(sealed, piece) == frames);
  }
}

TEST_CASE("cipher: a byte that was changed anywhere is noticed", "[rendezvous][unit]") {
  LinkCipher agent(LinkRole::Agent, keys());
  const std::string first = agent.seal(frame("one")), second = agent.seal(frame("two"));
  for (std::size_t at = 0; at < first.size() + second.size(); ++at) {
    std::string bytes = first + second + std::string(600, 'z');  // enough for a length that was changed
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const std::string frames = opened(bytes, bytes.size());
    // A length that has become very large is noticed at once or waited for; nothing of it is ever shown.
    const bool is_waiting = at >= 24 && (at - 24 < 4 || (at >= first.size() && at - first.size() < 4));
    const std::string before = at < first.size() ? "" : frame("one");
    INFO(at);
    CHECK((frames == before + "!" || (is_waiting && frames == before)));
  }
}

TEST_CASE("cipher: frames that were left out, repeated, exchanged, added or sent back are noticed",
          "[rendezvous][unit]") {
  LinkCipher agent(LinkRole::Agent, keys());
  std::vector<std::string> sealed;
  for (const char* text : {"one", "two", "three"}) sealed.push_back(agent.seal(frame(text)));
  LinkCipher again(LinkRole::Agent, keys()), coordinator(LinkRole::Coordinator, keys());
  const std::string elsewhere = again.seal(frame("forged")), back = coordinator.seal(frame("one"));
  const std::string header = sealed[0].substr(0, 24);
  CHECK(opened(sealed[0] + sealed[1] + sealed[2], 1000) == frame("one") + frame("two") + frame("three"));
  CHECK(opened(sealed[0] + sealed[2], 1000) == frame("one") + "!");
  CHECK(opened(sealed[0] + sealed[1] + sealed[1], 1000) == frame("one") + frame("two") + "!");
  CHECK(opened(sealed[0] + sealed[2] + sealed[1], 1000) == frame("one") + "!");
  CHECK(opened(header + sealed[1], 1000) == "!");
  CHECK(opened(sealed[0] + elsewhere.substr(24), 1000) == frame("one") + "!");
  CHECK(opened(sealed[0] + frame("in clear") + std::string(kSealBytes, '\0'), 1000) == frame("one") + "!");
  CHECK(opened(sealed[0] + encode(Heartbeat{}) + std::string(kSealBytes, '\0'), 1000) == frame("one") + "!");
  CHECK(opened(back, 1000) == "!");
  CHECK(opened(header + "\xff\xff\xff\xff", 1000) == "!");  // no need to wait for 4 GiB
}

}  // namespace
}  // namespace ddp::rendezvous
