// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer for both sides of the agent link's handshake. The first byte of an input chooses: memberships, a job, and
// what happens to the bytes. Either the rest is what a stranger sends to one side, or the two sides talk to each other
// and the rest is added to what is on its way, or cuts it. This must hold:
//   * However the bytes are cut, the verdict and the answer are the same.
//   * Who proves nothing gets no Done from a side that wants a proof.
//   * Untouched bytes between two sides that agree make both Done, and between others no one.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rendezvous/base/check.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {
namespace {

using namespace rendezvous;

Secret secret_of(unsigned char first) {
  Secret::Bytes bytes;
  bytes.fill(first);
  return Secret(bytes);
}

// Vouches for texts as MUNGE does, so to say.
class FakeVoucher : public Voucher {
 public:
  explicit FakeVoucher(std::string user) : user_(std::move(user)) {}
  std::string vouch(std::string_view text) override { return user_ + std::string(text); }
  std::string why_not(const std::string& credential, std::string_view text) override {
    return credential == vouch(text) ? "" : "it is another user's";
  }

 private:
  std::string user_;
};

Membership membership_of(unsigned kind, unsigned char who) {
  if (kind == 1) return secret_of(who);
  if (kind == 2) return Membership(std::make_shared<FakeVoucher>("user " + std::to_string(who) + " "));
  return {};
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
void meet_stranger(const Handshake& handshake, std::string_view bytes, std::size_t piece, bool wants_proof) {
  const Side whole = feed_all(handshake, bytes, bytes.size());
  DDP_CHECK(whole == feed_all(handshake, bytes, piece));
  DDP_CHECK(!wants_proof || !whole.is_done());
  if (whole.goes_on()) (void)handshake.ended();
}

// Lets the two sides talk; `touch` may change what the agent sends or what the coordinator answers, once each.
void meet_each_other(AgentHandshake agent, CoordinatorHandshake coordinator, bool agree, Script& script) {
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
  const auto* agents = std::get_if<HandshakeDone>(&ours.verdict);
  const auto* coordinators = std::get_if<HandshakeDone>(&theirs.verdict);
  DDP_CHECK(is_touched || ((agents != nullptr) == agree && (coordinators != nullptr) == agree));
  if (agents && coordinators && !is_touched) {
    DDP_CHECK(agents->keys.agents_frames == coordinators->keys.agents_frames);
    DDP_CHECK(agents->keys.coordinators_frames == coordinators->keys.coordinators_frames);
  }
  DDP_CHECK(agree || (!agents && !coordinators) || is_touched);
}

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddp::fuzz;
  Script script(data, size);
  const unsigned choice = script.byte(), kinds = script.byte();
  const unsigned agents = kinds % 3, coordinators = kinds / 3 % 3;
  const bool same = choice & 4, same_job = choice & 8;
  const JobTag job = {7};
  const KeyPair agents_key(secret_of(5)), coordinators_key(secret_of(6));
  const AgentHandshake agent("node0:29400", membership_of(agents, 1), same_job ? job : JobTag{8}, agents_key);
  const CoordinatorHandshake coordinator(membership_of(coordinators, same ? 1 : 3), job, coordinators_key);
  const bool agree = same_job && agents == coordinators && (agents == 0 || same);
  const std::size_t piece = 1 + script.byte() % 40;
  const std::string_view rest = script.bytes(choice & 16 ? 4096 : 0);
  if (choice & 16) {
    if (choice & 32) {
      meet_stranger(agent, rest, piece, agents != 0);
    } else {
      meet_stranger(coordinator, rest, piece, coordinators != 0);
    }
  } else {
    meet_each_other(agent, coordinator, agree, script);
  }
  return 0;
}
