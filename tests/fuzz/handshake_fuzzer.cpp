// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for both sides of the agent link's handshake. The first byte of an input chooses: secrets, a job, and what
// happens to the bytes. Either the rest is what a stranger sends to one side, or the two sides talk to each other and
// the rest is added to what is on its way, or cuts it. This must hold:
//   * However the bytes are cut, the verdict and the answer are the same.
//   * Who does not know the secret gets no Done from a side that has one.
//   * Untouched bytes between two sides that agree make both Done, and between others no one.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rendezvous/base/check.hpp"
#include "rendezvous/link/handshake.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {
namespace {

using namespace rendezvous;

constexpr Nonce kAgents = {1}, kCoordinators = {2};

Secret secret_of(unsigned char first) {
  Secret::Bytes bytes;
  bytes.fill(first);
  return Secret(bytes);
}

struct Side {
  std::string answer;
  HandshakeVerdict verdict = HandshakeGoesOn{};

  bool goes_on() const { return std::holds_alternative<HandshakeGoesOn>(verdict); }
  bool is_done() const { return std::holds_alternative<HandshakeDone>(verdict); }
  bool operator==(const Side& other) const {
    const auto* done = std::get_if<HandshakeDone>(&verdict);
    const auto* failed = std::get_if<HandshakeFailed>(&verdict);
    const auto* others_done = std::get_if<HandshakeDone>(&other.verdict);
    const auto* others_failed = std::get_if<HandshakeFailed>(&other.verdict);
    return answer == other.answer && verdict.index() == other.verdict.index() &&
           (!done || done->beyond == others_done->beyond) && (!failed || failed->kind == others_failed->kind);
  }
};

// Feeds all bytes, `piece` at a time.
template <typename Handshake>
Side feed_all(Handshake handshake, std::string_view bytes, std::size_t piece) {
  Side side;
  while (!bytes.empty() && side.goes_on()) {
    side.verdict = handshake.feed(bytes.substr(0, piece), side.answer);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (auto* done = std::get_if<HandshakeDone>(&side.verdict)) done->beyond += bytes;
  return side;
}

template <typename Handshake>
void meet_stranger(const Handshake& handshake, std::string_view bytes, std::size_t piece, bool has_secret) {
  const Side whole = feed_all(handshake, bytes, bytes.size());
  DDP_CHECK(whole == feed_all(handshake, bytes, piece));
  DDP_CHECK(!has_secret || !whole.is_done());
  if (whole.goes_on()) (void)handshake.ended();
}

// Lets the two sides talk; `touch` may change what the agent sends or what the coordinator answers, once each.
void meet_each_other(AgentHandshake agent, CoordinatorHandshake coordinator, bool agree, bool has_secret,
                     Script& script) {
  const unsigned where = script.byte(), how = script.byte();
  const bool is_touched = how != 0;
  Side ours, theirs;
  std::string up = agent.preface();
  for (unsigned turn = 0; turn < 4 && !up.empty() && theirs.goes_on(); ++turn) {
    if (is_touched && turn * 64 <= where && where < turn * 64 + up.size()) {
      up[where - turn * 64] = static_cast<char>(up[where - turn * 64] ^ static_cast<char>(how));
    }
    std::string down;
    theirs.verdict = coordinator.feed(up, down);
    up.clear();
    if (!down.empty() && ours.goes_on()) ours.verdict = agent.feed(down, up);
  }
  if (!is_touched) {
    DDP_CHECK(ours.is_done() == agree && theirs.is_done() == agree);
  } else if (has_secret && !agree) {
    DDP_CHECK(!ours.is_done() && !theirs.is_done());
  }
}

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp::fuzz;
  Script script(data, size);
  const unsigned choice = script.byte();
  const bool agent_has = choice & 1, coordinator_has = choice & 2, same = choice & 4, same_job = choice & 8;
  const auto agents = agent_has ? std::optional(secret_of(1)) : std::nullopt;
  const auto coordinators = coordinator_has ? std::optional(secret_of(same ? 1 : 3)) : std::nullopt;
  const JobTag job = {7};
  const AgentHandshake agent("node0:29400", agents, same_job ? job : JobTag{8}, kAgents);
  const CoordinatorHandshake coordinator(coordinators, job, kCoordinators);
  const bool agree = same_job && agent_has == coordinator_has && (!agent_has || same);
  const std::size_t piece = 1 + script.byte() % 40;
  const std::string_view rest = script.bytes(choice & 16 ? 4096 : 0);
  if (choice & 16) {
    if (choice & 32) {
      meet_stranger(agent, rest, piece, agent_has);
    } else {
      meet_stranger(coordinator, rest, piece, coordinator_has);
    }
  } else {
    meet_each_other(agent, coordinator, agree, agent_has && coordinator_has, script);
  }
  return 0;
}
