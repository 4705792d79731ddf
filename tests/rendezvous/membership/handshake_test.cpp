// SPDX-License-Identifier: BSD-3-Clause
// Both sides of the handshake without a socket, with each other and with strangers.
#include "rendezvous/membership/handshake.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tests/rendezvous/membership/known_secrets.hpp"
#include "tests/rendezvous/store/hex.hpp"
#include "tests/rendezvous/store/speakers.hpp"

namespace ddp::rendezvous {
namespace {

using Kind = HandshakeFailed::Kind;

const KeyPair kOfAgent(secret_of(0xaa));
const KeyPair kOfCoordinator(secret_of(0xcc));
const std::string kAgentsKey = "14ca9e4d387bccf35746e0407daaacc6b28a4f8445ef5a5158894db983e24070";
const std::string kCoordinatorsKey = "e8980c4ea5ebf8fb6c281098b75cdd32862922a638778251979b6d322ed7e02e";

const JobTag kJob = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17};

AgentHandshake agent(Membership membership = {}, std::optional<JobTag> job = {}) {
  return {"node0:29400", std::move(membership), job, kOfAgent};
}
CoordinatorHandshake coordinator(Membership membership = {}) { return {std::move(membership), kJob, kOfCoordinator}; }

std::string bytes_of(const Proof& proof) { return {proof.begin(), proof.end()}; }

// Returns the keys and proofs of a link between the two, as this agent and this coordinator know them.
LinkKeys keys_of(const Secret& secret, const KeyPair& of_agent = kOfAgent,
                 const KeyPair& of_coordinator = kOfCoordinator) {
  const AgentHandshake one("", secret, {}, of_agent);
  std::string preface;
  CoordinatorHandshake other(secret, kJob, of_coordinator);
  other.feed(one.preface(), preface);
  return *agree(of_agent, of_coordinator.public_key(), secret, one.preface() + preface);
}

// Vouches as MUNGE does, for the user whose name it has.
class FakeVoucher : public Voucher {
 public:
  explicit FakeVoucher(std::string user) : user_(std::move(user)) {}
  std::string vouch(std::string_view text) override { return user_ + " says: " + std::string(text); }
  std::string why_not(const std::string& credential, std::string_view text) override {
    if (credential == user_ + " says: " + std::string(text)) return "";
    return credential.starts_with(user_ + " ") ? "it is for another text" : "it is of another user";
  }

 private:
  std::string user_;
};
Membership munge(const std::string& user) { return std::shared_ptr<Voucher>(std::make_shared<FakeVoucher>(user)); }

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

// Returns whether both sides are done and can open what the other one seals.
bool have_same_keys(const Meeting& meeting) {
  const LinkKeys& one = std::get<HandshakeDone>(meeting.of_agent).keys;
  const LinkKeys& other = std::get<HandshakeDone>(meeting.of_coordinator).keys;
  return one.agents_frames == other.agents_frames && one.coordinators_frames == other.coordinators_frames;
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
    const Meeting vouched = meet(agent(munge("alice")), coordinator(munge("alice")), piece);
    CHECK(told(vouched.of_agent) == "done+down");
    CHECK(told(vouched.of_coordinator) == "done");
    for (const Meeting& each : {open, proved, vouched}) CHECK(have_same_keys(each));
  }
}

TEST_CASE("handshake: a preface that was changed on the way gives two sides that do not understand each other",
          "[rendezvous][unit]") {
  // Somebody in between takes out the job's tag, which the coordinator accepts.
  AgentHandshake one = agent({}, kJob);
  CoordinatorHandshake other = coordinator();
  std::string changed = one.preface(), to_agent, ignored;
  changed.replace(9, 8, 8, '\0');
  const HandshakeVerdict of_coordinator = other.feed(changed, to_agent);
  const HandshakeVerdict of_agent = one.feed(to_agent, ignored);
  CHECK(told(of_coordinator) == "done");
  CHECK(told(of_agent) == "done");
  CHECK_FALSE(have_same_keys({of_agent, of_coordinator}));
  // With a secret the proofs differ already.
  AgentHandshake proving = agent(secret_of(1), kJob);
  CoordinatorHandshake proved = coordinator(secret_of(1));
  changed = proving.preface();
  changed.replace(9, 8, 8, '\0');
  std::string proof, refusal;
  to_agent.clear();
  CHECK(told(proved.feed(changed, to_agent)) == "goes on");
  CHECK(told(proving.feed(to_agent, proof)) == "goes on");
  CHECK(kind_of(proved.feed(proof, refusal)) == Kind::OtherSecret);
}

TEST_CASE("handshake: nobody can talk the two sides out of their secret", "[rendezvous][unit]") {
  for (const char mode : {'\0', '\1', '\2', '\3'}) {
    if (mode == 1) continue;
    CoordinatorHandshake other = coordinator(secret_of(1));
    AgentHandshake one = agent(secret_of(1));
    std::string changed = one.preface(), answer;
    changed[8] = mode;
    CHECK(std::holds_alternative<HandshakeFailed>(other.feed(changed, answer)));
    changed = answer.empty() ? bytes_of(Proof{}) : answer;
    changed[8] = mode;
    CHECK(std::holds_alternative<HandshakeFailed>(one.feed(changed, answer)));
  }
}

TEST_CASE("handshake: MUNGE lets in the same user and says why it refuses another", "[rendezvous][unit]") {
  for (std::size_t piece = 1; piece <= 64; ++piece) {
    const Meeting other = meet(agent(munge("mallory")), coordinator(munge("alice")), piece);
    CHECK(told(other.of_coordinator) == "it is of another user");
    CHECK(kind_of(other.of_coordinator) == Kind::OtherSecret);
    CHECK(told(other.of_agent) ==
          "the coordinator at node0:29400 does not accept this node's credential of MUNGE: are both nodes of one "
          "cluster, run by the same user, and do their clocks agree?");
    CHECK(kind_of(other.of_agent) == Kind::OtherSecret);
  }
  // What the agent vouched for on another connection is worth nothing.
  CoordinatorHandshake elsewhere = coordinator(munge("alice"));
  CoordinatorHandshake here(munge("alice"), kJob, KeyPair::random());
  AgentHandshake one = agent(munge("alice"));
  std::string to_agent, credential, answer;
  elsewhere.feed(one.preface(), to_agent);
  one.feed(to_agent, credential);
  here.feed(one.preface(), answer);
  answer.clear();
  CHECK(told(here.feed(credential, answer)) == "it is for another text");
  CHECK(answer == std::string(2, '\0'));
  // Lengths that no credential has.
  CoordinatorHandshake wrong = coordinator(munge("alice"));
  wrong.feed(one.preface(), answer);
  CHECK(kind_of(wrong.feed("\xff\xff", answer)) == Kind::OtherSecret);
}

TEST_CASE("handshake: where nodes prove themselves in different ways, both are named", "[rendezvous][unit]") {
  struct Case {
    Membership of_agent, of_coordinator;
    std::string at_agent, at_coordinator;
  };
  const std::vector<Case> cases = {
      {munge("alice"), secret_of(1),
       "this node has MUNGE, the coordinator at node0:29400 has a secret file: give all nodes the same --secret",
       "it has MUNGE, this job a secret file"},
      {secret_of(1), munge("alice"),
       "this node has a secret file (DDPRUN_SECRET_FILE), the coordinator at node0:29400 has MUNGE: give all nodes the "
       "same --secret",
       "it has a secret file, this job MUNGE"},
      {munge("alice"),
       {},
       "this node has MUNGE, the coordinator at node0:29400 has no secret: give all nodes the same --secret",
       "it has MUNGE, this job no secret"},
      {{},
       munge("alice"),
       "this node has no secret, the coordinator at node0:29400 has MUNGE: give all nodes the same --secret",
       "it has no secret, this job MUNGE"},
  };
  for (const Case& each : cases) {
    const Meeting meeting = meet(agent(each.of_agent), coordinator(each.of_coordinator), 1000);
    CHECK(told(meeting.of_agent) == each.at_agent);
    CHECK(kind_of(meeting.of_agent) == Kind::OtherSecret);
    CHECK(told(meeting.of_coordinator) == each.at_coordinator);
    CHECK(kind_of(meeting.of_coordinator) == Kind::OtherSecret);
  }
}

TEST_CASE("handshake: bytes of the link that come with its end are handed on", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  const std::string proof = bytes_of(keys_of(secret).of_agent);
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
  CHECK(to_hex(agent().preface()) == "dd64647072756e0400" + any + kAgentsKey);
  CHECK(to_hex(agent(secret).preface()) == "dd64647072756e0401" + any + kAgentsKey);
  CHECK(to_hex(agent(munge("alice")).preface()) == "dd64647072756e0402" + any + kAgentsKey);
  CHECK(to_hex(agent(secret, kJob).preface()) == "dd64647072756e0401" + job + kAgentsKey);
  std::string answer;
  CoordinatorHandshake side = coordinator(secret);
  CHECK(told(side.feed(agent(secret).preface(), answer)) == "goes on");
  CHECK(to_hex(answer) == "dd64647072756e0401" + job + kCoordinatorsKey);
  answer.clear();
  CHECK(told(side.feed(bytes_of(keys_of(secret).of_agent), answer)) == "done");
  CHECK(answer == bytes_of(keys_of(secret).of_coordinator));
}

TEST_CASE("handshake: both sides report a secret that differs or is missing on one side", "[rendezvous][unit]") {
  for (std::size_t piece = 1; piece <= 64; ++piece) {
    const Meeting wanted = meet(agent(), coordinator(secret_of(1)), piece);
    CHECK(told(wanted.of_agent) ==
          "the coordinator at node0:29400 wants a secret: give --secret FILE or DDPRUN_SECRET_FILE");
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
  for (const char version : {'\1', '\2'}) {
    std::string answer;
    CHECK(kind_of(agent().feed(newer.substr(0, 7) + version, answer)) == Kind::OtherVersion);
    CHECK(kind_of(coordinator().feed(newer.substr(0, 7) + version, answer)) == Kind::OtherVersion);
  }
  for (const std::string& rest : {std::string(), std::string(1, 'x'), std::string(500, 'x')}) {
    for (std::size_t piece = 1; piece <= 64; ++piece) {
      std::string answer;
      AgentHandshake one = agent(secret_of(1));
      const HandshakeVerdict of_agent = feed(one, newer + rest, piece, answer);
      CHECK(told(of_agent) ==
            "the coordinator at node0:29400 is of another version of ddprun (its agent link is version 7, this node's "
            "version 4): install the same on every node");
      CHECK(kind_of(of_agent) == Kind::OtherVersion);
      CHECK(answer.empty());

      CoordinatorHandshake other = coordinator(secret_of(1));
      const HandshakeVerdict of_coordinator = feed(other, newer + rest, piece, answer);
      CHECK(told(of_coordinator) ==
            "it is of another version of ddprun (its agent link is version 7, this coordinator's version 4)");
      CHECK(kind_of(of_coordinator) == Kind::OtherVersion);
      CHECK(to_hex(answer) ==
            "dd64647072756e0401"
            "1011121314151617" +
                kCoordinatorsKey);
    }
  }
}

TEST_CASE("handshake: the agent shows the first bytes of anything else that answers", "[rendezvous][unit]") {
  const std::string answers = "what answers there is not a ddprun coordinator (";
  std::string ignored;
  CHECK(told(agent().feed("HTTP/1.1 400 Bad Request\r\n", ignored)) == answers + "first bytes: \"HTTP/1.1 400 Bad\")");
  CHECK(told(agent().feed(from_hex("00 22 5c 7f"), ignored)) == answers + "first bytes: \"\\x00\\x22\\x5c\\x7f\")");
  CHECK(told(agent().feed(from_hex("dd 64647072756e 04 03") + std::string(40, 'n'), ignored)) ==
        answers + "first bytes: \"\\xddddprun\\x04\\x03nnnnnnn\")");
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
  const std::string preface = from_hex("dd 64647072756e 04 01") + std::string(40, 'n');
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
  const std::string right = bytes_of(keys_of(secret).of_agent);
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
  CHECK(answer_to(bytes_of(keys_of(secret, kOfAgent, KeyPair::random()).of_agent), 32) == zeros);
  CHECK(answer_to(bytes_of(keys_of(secret).of_coordinator), 32) == zeros);
  CHECK(answer_to(bytes_of(keys_of(secret, kOfCoordinator, kOfAgent).of_coordinator), 32) == zeros);
}

TEST_CASE("handshake: an agent does not trust a coordinator that only repeats earlier bytes", "[rendezvous][unit]") {
  const Secret secret = secret_of(1);
  CoordinatorHandshake other = coordinator(secret);
  for (const Proof& proof :
       {Proof{}, keys_of(secret).of_agent, keys_of(secret, KeyPair::random(), kOfCoordinator).of_coordinator}) {
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
