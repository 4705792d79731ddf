// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/survival.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "runtime/base/own_agent.hpp"

namespace ddp::runtime {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::NodeFacts;
using rendezvous::NodePage;
using rendezvous::NodePhase;
using Clock = std::chrono::steady_clock;

// Time for ddprun to end a round that this process has left, beyond the silence after which a node counts as lost. The
// failure of a worker reaches ddprun within milliseconds.
constexpr std::chrono::seconds kEndedWithin{10};
constexpr std::chrono::microseconds kBetweenLooksAtNode{500};
constexpr std::chrono::milliseconds kBetweenLooksForEnd{5};  // a thread looks that waits beside the training

[[noreturn]] void fail(ErrorCode code, const std::string& what) { throw Error(code, "staying in the job: " + what); }

// Asks this process's agent; an answer that refuses is an error.
rendezvous::AgentReply ask(rendezvous::AgentRequest request) {
  auto reply = ask_own_agent(std::move(request));
  if (!reply) fail(ErrorCode::System, "no ddprun has started this process");
  if (!reply->answer.error.empty()) fail(ErrorCode::System, reply->answer.error);
  return std::move(*reply);
}

// Returns the node's page, which stays mapped to the end of the process.
const NodePage* map_page(int memory) {
  void* const page = mmap(nullptr, sizeof(NodePage), PROT_READ, MAP_SHARED, memory, 0);
  if (page == MAP_FAILED) fail(ErrorCode::System, "the agent's page cannot be mapped");
  const auto* const mapped = static_cast<const NodePage*>(page);
  if (mapped->version == rendezvous::kPageVersion) return mapped;
  fail(ErrorCode::System, "the agent's page has another layout (use ddprun and libddp of one release)");
}

}  // namespace

std::optional<Survival> Survival::of_this_process() {
  const auto stays = ask_own_agent({.ask = "stay", .stays = true});
  if (!stays || !stays->answer.stays) return std::nullopt;
  const rendezvous::AgentReply reply = ask({.ask = "page"});
  if (reply.descriptors.size() != 2) fail(ErrorCode::System, "the agent gives no page");
  const NodePage* const page = map_page(reply.descriptors[0].get());
  const auto facts = page->facts.read();
  if (!facts) fail(ErrorCode::System, "the agent's page is empty");
  return Survival(page, std::max(reply.answer.local_rank, 0), facts->round, kEndedWithin + stays->answer.lost_after);
}

void Survival::forgo() const { ask({.ask = "stay"}); }

NextRound Survival::await_next_round(const std::string& why) {
  const auto say_quiet = [this] { ask({.ask = "quiet", .round = round_}); };
  say_quiet();
  auto deadline = Clock::now() + ended_within_;
  while (true) {
    const std::optional<NodeFacts> facts = page_->facts.read();
    if (facts && facts->phase == NodePhase::Running && facts->round > round_) {
      round_ = facts->round;
      return {.round = facts->round,
              .rank = facts->base_rank + local_rank_,
              .world_size = facts->world_size,
              .local_rank = local_rank_,
              .local_world_size = facts->local_world_size,
              .restart_count = facts->restart_count,
              .node_rank = facts->node_rank,
              .node_count = facts->node_count,
              .master_addr = facts->master_addr.data(),
              .master_port = static_cast<std::uint16_t>(facts->master_port)};
    }
    const bool is_revoked = facts && facts->phase == NodePhase::Revoked;
    if (is_revoked && facts->round > round_) {  // a round that this process has not seen is over, too
      round_ = facts->round;
      say_quiet();
    }
    if (facts && facts->phase == NodePhase::Stopping) fail(ErrorCode::Aborted, "ddprun ends the workers: " + why);
    if (is_revoked) deadline = Clock::now() + ended_within_;  // ddprun's agent has its own limits
    if (Clock::now() >= deadline) {
      fail(ErrorCode::Timeout, "ddprun has not ended the round within " + rendezvous::to_string(ended_within_) +
                                   ", so no worker has failed: " + why);
    }
    std::this_thread::sleep_for(kBetweenLooksAtNode);
  }
}

bool Survival::await_end(std::optional<std::chrono::milliseconds> timeout) const {
  const auto until = Clock::now() + timeout.value_or(ended_within_);
  while (true) {
    const std::optional<NodeFacts> facts = page_->facts.read();
    if (facts && (facts->round > round_ || facts->phase != NodePhase::Running)) return true;
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kBetweenLooksForEnd, until - Clock::now()));
  }
}

bool Survival::say_connections(const std::string& inodes, bool are_others) const {
  return ask({.ask = "connections", .others = are_others, .sockets = inodes}).answer.ends_them;
}

}  // namespace ddp::runtime
