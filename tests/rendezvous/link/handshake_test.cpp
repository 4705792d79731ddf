// SPDX-License-Identifier: BSD-3-Clause
// Both sides of the handshake without a socket, with each other and with strangers.
#include "rendezvous/link/handshake.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/speakers.hpp"

namespace ddp::rendezvous {
namespace {

using Kind = HandshakeFailed::Kind;

Secret secret_of(unsigned char byte) {
  Secret::Bytes bytes;
  bytes.fill(byte);
  return Secret(bytes);
}
Nonce nonce_of(unsigned char byte) {
  Nonce nonce;
  nonce.fill(byte);
  return nonce;
}
const Nonce kOfAgent = nonce_of(0xaa);
const Nonce kOfCoordinator = nonce_of(0xcc);

const JobTag kJob = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17};

AgentHandshake agent(std::optional<Secret> secret = {}, std::optional<JobTag> job = {}) {
  return {"node0:29400", std::move(secret), job, kOfAgent};
}
CoordinatorHandshake coordinator(std::optional<Secret> secret = {}) {
  return CoordinatorHandshake(std::move(secret), kJob, kOfCoordinator);
}

std::string bytes_of(const Proof& proof) { return {proof.begin(), proof.end()}; }

// Describes a verdict in words that a test can compare.
std::string told(const HandshakeVerdict& verdict) {
  if (const auto* done = std::get_if<HandshakeDone>(&verdict)) return "done" + done->beyond;
  if (const auto* failed = std::get_if<HandshakeFailed>(&verdict)) return failed->why;
  return "goes on";
}

Kind kind_of(const HandshakeVerdict& verdict) {
  REQUIRE(std::holds_alternative<HandshakeFailed>(verdict));
  return std::get<HandshakeFailed>(verdict).kind;
}

// Feeds pieces of a size until there is a verdict; the rest counts as bytes behind the handshake.
template <typename Side>
HandshakeVerdict feed(Side& side, std::string_view bytes, std::size_t piece, std::string& answer) {
  HandshakeVerdict verdict = HandshakeGoesOn{};
  while (!bytes.empty() && std::holds_alternative<HandshakeGoesOn>(verdict)) {
    verdict = side.feed(bytes.substr(0, piece), answer);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (auto* done = std::get_if<HandshakeDone>(&verdict)) done->beyond += bytes;
  return verdict;
}

// Runs both sides with each other; each sends "frames" as soon as it may.
struct Meeting {
  HandshakeVerdict of_agent = HandshakeGoesOn{};
  HandshakeVerdict of_coordinator = HandshakeGoesOn{};
};
Meeting meet(AgentHandshake one, CoordinatorHandshake other, std::size_t piece) {
  Meeting meeting;
  std::string to_coordinator = one.preface();
  while (!to_coordinator.empty()) {
    std::string to_agent;
    meeting.of_coordinator = feed(other, to_coordinator, piece, to_agent);
    if (std::holds_alternative<HandshakeDone>(meeting.of_coordinator)) to_agent += "+down";
    to_coordinator.clear();
    if (!to_agent.empty()) meeting.of_agent = feed(one, to_agent, piece, to_coordinator);
  }
  return meeting;
}

TEST_CASE("handshake: both sides finish, with and without a secret, however the bytes are split",
          "[rendezvous][unit]") {
  for (std::size_t piece = 1; piece <= 64; ++piece) {
    const Meeting open = meet(agent(), coordinator(), piece);
    CHECK(told(open.of_agent) == "done+down");
    CHECK(told(open.of_coordinator) == "done");
    const Meeting proved = meet(agent(secret_of(1)), coordinator(secret_of(1)), piece);
    CHECK(told(proved.of_agent) == "done+down");
    CHECK(told(proved.of_coordinator) == "done");
  }
}

TEST_CASE("handshake: bytes of the link that come with its end are handed on", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  const std::string proof = bytes_of(prove(secret, LinkRole::Agent, kOfAgent, kOfCoordinator));
  for (std::size_t piece = 1; piece <= 80; ++piece) {
    std::string answer;
    CoordinatorHandshake open = coordinator();
    CHECK(told(feed(open, agent().preface() + "+up", piece, answer)) == "done+up");
    CoordinatorHandshake proving = coordinator(secret);
    CHECK(told(feed(proving, agent(secret).preface() + proof + "+up", piece, answer)) == "done+up");
  }
}

TEST_CASE("handshake: the bytes are those of the header's drawing", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  const std::string any(16, '0'), job = "1011121314151617";
  CHECK(to_hex(agent().preface()) == "dd64647072756e0200" + any + std::string(32, 'a'));
  CHECK(to_hex(agent(secret).preface()) == "dd64647072756e0201" + any + std::string(32, 'a'));
  CHECK(to_hex(agent(secret, kJob).preface()) == "dd64647072756e0201" + job + std::string(32, 'a'));
  std::string answer;
  CoordinatorHandshake side = coordinator(secret);
  CHECK(told(side.feed(agent(secret).preface(), answer)) == "goes on");
  CHECK(to_hex(answer) == "dd64647072756e0201" + job + std::string(32, 'c'));
  answer.clear();
  CHECK(told(side.feed(bytes_of(prove(secret, LinkRole::Agent, kOfAgent, kOfCoordinator)), answer)) == "done");
  CHECK(answer == bytes_of(prove(secret, LinkRole::Coordinator, kOfAgent, kOfCoordinator)));
}

TEST_CASE("handshake: both sides report a secret that differs or is missing on one side", "[rendezvous][unit]") {
  for (std::size_t piece = 1; piece <= 64; ++piece) {
    const Meeting wanted = meet(agent(), coordinator(secret_of(1)), piece);
    CHECK(told(wanted.of_agent) == "the coordinator at node0:29400 wants a secret: give DDPRUN_SECRET_FILE");
    CHECK(kind_of(wanted.of_agent) == Kind::OtherSecret);
    CHECK(told(wanted.of_coordinator) == "it has no secret, this job wants one");

    const Meeting unwanted = meet(agent(secret_of(1)), coordinator(), piece);
    CHECK(told(unwanted.of_agent) ==
          "the coordinator at node0:29400 has no secret, this node has one (DDPRUN_SECRET_FILE)");
    CHECK(kind_of(unwanted.of_agent) == Kind::OtherSecret);
    CHECK(told(unwanted.of_coordinator) == "it has a secret, this job has none");

    const Meeting other = meet(agent(secret_of(1)), coordinator(secret_of(2)), piece);
    CHECK(told(other.of_agent) ==
          "the secrets of this node and of the coordinator at node0:29400 differ (DDPRUN_SECRET_FILE)");
    CHECK(kind_of(other.of_agent) == Kind::OtherSecret);
    CHECK(told(other.of_coordinator) == "its secret differs");
  }
}

TEST_CASE("handshake: the nodes of one job pass over the coordinator of another, whatever its secret",
          "[rendezvous][unit]") {
  JobTag other = kJob;
  other.back() ^= 1;
  for (std::size_t piece = 1; piece <= 64; ++piece) {
    const Meeting own = meet(agent(secret_of(1), kJob), coordinator(secret_of(1)), piece);
    CHECK(told(own.of_agent) == "done+down");
    CHECK(told(own.of_coordinator) == "done");
    for (const auto& secret : {std::optional<Secret>(), std::optional<Secret>(secret_of(1))}) {
      const Meeting strange = meet(agent(secret, other), coordinator(secret_of(1)), piece);
      CHECK(told(strange.of_agent) == "the coordinator of another job answers there");
      CHECK(kind_of(strange.of_agent) == Kind::OtherJob);
      CHECK(kind_of(strange.of_coordinator) == Kind::OtherJob);
    }
  }
}

TEST_CASE("handshake: a job's tag follows from its id and is never all zeros", "[rendezvous][unit]") {
  CHECK(job_tag("slurm-7.0") == job_tag("slurm-7.0"));
  CHECK(job_tag("slurm-7.0") != job_tag("slurm-7.1"));
  CHECK(job_tag("") != JobTag{});
}

TEST_CASE("handshake: another version of ddprun is known by eight bytes, whatever follows", "[rendezvous][unit]") {
  const std::string newer = from_hex("dd 64647072756e 07");
  for (const std::string& rest : {std::string(), std::string(1, 'x'), std::string(500, 'x')}) {
    for (std::size_t piece = 1; piece <= 64; ++piece) {
      std::string answer;
      AgentHandshake one = agent(secret_of(1));
      const HandshakeVerdict of_agent = feed(one, newer + rest, piece, answer);
      CHECK(told(of_agent) ==
            "the coordinator at node0:29400 is of another version of ddprun (its agent link is version 7, this node's "
            "version 2): install the same on every node");
      CHECK(kind_of(of_agent) == Kind::OtherVersion);
      CHECK(answer.empty());

      CoordinatorHandshake other = coordinator(secret_of(1));
      const HandshakeVerdict of_coordinator = feed(other, newer + rest, piece, answer);
      CHECK(told(of_coordinator) ==
            "it is of another version of ddprun (its agent link is version 7, this coordinator's version 2)");
      CHECK(kind_of(of_coordinator) == Kind::OtherVersion);
      CHECK(to_hex(answer) ==
            "dd64647072756e0201"
            "1011121314151617" +
                std::string(32, 'c'));
    }
  }
}

TEST_CASE("handshake: the agent shows the first bytes of anything else that answers", "[rendezvous][unit]") {
  const std::string answers = "what answers there is not a ddprun coordinator (";
  std::string ignored;
  CHECK(told(agent().feed("HTTP/1.1 400 Bad Request\r\n", ignored)) == answers + "first bytes: \"HTTP/1.1 400 Bad\")");
  CHECK(told(agent().feed(from_hex("00 22 5c 7f"), ignored)) == answers + "first bytes: \"\\x00\\x22\\x5c\\x7f\")");
  CHECK(told(agent().feed(from_hex("dd 64647072756e 02 02") + std::string(24, 'n'), ignored)) ==
        answers + "first bytes: \"\\xddddprun\\x02\\x02nnnnnnn\")");
  CHECK(told(agent().ended()) == answers + "it closed the connection without a word)");
  CHECK(kind_of(agent().ended()) == Kind::Stranger);
  AgentHandshake half = agent();
  CHECK(told(half.feed("\xdd"
                       "dd",
                       ignored)) == "goes on");
  CHECK(told(half.ended()) == answers + "it closed the connection after first bytes: \"\\xdddd\")");
}

TEST_CASE("handshake: an agent does not take itself for a coordinator", "[rendezvous][unit]") {
  for (const auto& secret : {std::optional<Secret>(), std::optional<Secret>(secret_of(1))}) {
    std::string answer;
    AgentHandshake one = agent(secret);
    const HandshakeVerdict verdict = one.feed(one.preface(), answer);
    CHECK(told(verdict) == "what answers there is not a ddprun coordinator (it sends back what it is sent)");
    CHECK(kind_of(verdict) == Kind::Stranger);
    CHECK(answer.empty());
  }
}

TEST_CASE("handshake: a coordinator that closes in the middle may come back, so nothing is final",
          "[rendezvous][unit]") {
  AgentHandshake one = agent(secret_of(1));
  std::string ignored;
  const std::string preface = from_hex("dd 64647072756e 02 01") + std::string(24, 'n');
  CHECK(told(one.feed(preface, ignored)) == "goes on");
  CHECK(told(one.ended()) == "it closed the connection in the middle of the handshake");
  CHECK(kind_of(one.ended()) == Kind::Stranger);
}

TEST_CASE("handshake: strangers get no answer, and are known by their first wrong byte", "[rendezvous][unit]") {
  for (const Speaker& speaker : kSpeakers) {
    const std::string bytes = from_hex(speaker.first_bytes);
    if (bytes[0] == '\xdd') continue;
    INFO(speaker.name);
    std::string answer;
    CoordinatorHandshake side = coordinator(secret_of(1));
    CHECK_THAT(told(side.feed(bytes.substr(0, 1), answer)), Catch::StartsWith("it is not a ddprun agent (first bytes"));
    CHECK(answer.empty());
  }
  const std::string preface = agent().preface();
  for (std::size_t wrong = 0; wrong < 7; ++wrong) {
    std::string bytes = preface;
    bytes[wrong] = static_cast<char>(bytes[wrong] ^ 1);
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
      std::string answer;
      CoordinatorHandshake side = coordinator();
      CHECK(kind_of(feed(side, bytes, piece, answer)) == Kind::Stranger);
      CHECK(answer.empty());
    }
  }
}

TEST_CASE("handshake: the coordinator proves nothing to an agent that has proved nothing", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  const std::string preface = agent(secret).preface();
  const std::string right = bytes_of(prove(secret, LinkRole::Agent, kOfAgent, kOfCoordinator));
  const std::string zeros(32, '\0');
  const auto answer_to = [&](const std::string& proof, std::size_t piece) {
    CoordinatorHandshake side = coordinator(secret);
    std::string of_preface, answer;
    side.feed(preface, of_preface);
    CHECK(of_preface.size() == kLinkPrefaceBytes);
    const HandshakeVerdict verdict = feed(side, proof, piece, answer);
    CHECK(told(verdict) == (answer.empty() ? "goes on" : "its secret differs"));
    return answer;
  };
  for (std::size_t piece = 1; piece <= 32; ++piece) {
    CHECK(answer_to(right.substr(1), piece).empty());  // incomplete: no answer yet
    for (std::size_t wrong = 0; wrong < 32; ++wrong) {
      std::string proof = right;
      proof[wrong] = static_cast<char>(proof[wrong] ^ 1);
      CHECK(answer_to(proof, piece) == zeros);
    }
  }
  // Proofs that were valid elsewhere: on an earlier connection, in the other direction, and this side's own.
  CHECK(answer_to(bytes_of(prove(secret, LinkRole::Agent, kOfAgent, nonce_of(0xcd))), 32) == zeros);
  CHECK(answer_to(bytes_of(prove(secret, LinkRole::Coordinator, kOfAgent, kOfCoordinator)), 32) == zeros);
  CHECK(answer_to(bytes_of(prove(secret, LinkRole::Coordinator, kOfCoordinator, kOfAgent)), 32) == zeros);
}

TEST_CASE("handshake: an agent does not trust a coordinator that only repeats earlier bytes", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  CoordinatorHandshake other = coordinator(secret);
  for (const Proof& proof : {Proof{}, prove(secret, LinkRole::Agent, kOfAgent, kOfCoordinator),
                             prove(secret, LinkRole::Coordinator, nonce_of(0xab), kOfCoordinator)}) {
    AgentHandshake one = agent(secret);
    std::string to_agent, to_coordinator;
    CoordinatorHandshake side = coordinator(secret);
    side.feed(one.preface(), to_agent);
    CHECK(told(one.feed(to_agent, to_coordinator)) == "goes on");
    CHECK(kind_of(one.feed(bytes_of(proof), to_coordinator)) == Kind::OtherSecret);
  }
}

}  // namespace
}  // namespace ddp::rendezvous
