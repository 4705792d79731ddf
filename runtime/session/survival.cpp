// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/survival.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rendezvous/agent_client.hpp"
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
rendezvous::DescriptorMessage ask(const std::string& what, const std::string& members = "") {
  auto answer = ask_own_agent(what, members);
  if (!answer) fail(ErrorCode::System, "no ddprun has started this process");
  if (const auto why = rendezvous::text_in(answer->text, "error")) fail(ErrorCode::System, *why);
  return std::move(*answer);
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
  const auto stays = ask_own_agent("stay", ",\"stays\":1");
  if (!stays || rendezvous::number_in(stays->text, "stays") != 1) return std::nullopt;
  const rendezvous::DescriptorMessage answer = ask("page");
  if (answer.descriptors.size() != 2) fail(ErrorCode::System, "the agent answers " + answer.text);
  const NodePage* const page = map_page(answer.descriptors[0].get());
  const auto facts = page->facts.read();
  if (!facts) fail(ErrorCode::System, "the agent's page is empty");
  const auto local_rank = static_cast<int>(rendezvous::number_in(answer.text, "local_rank").value_or(0));
  const std::chrono::milliseconds lost_after(rendezvous::number_in(stays->text, "lost_after_ms").value_or(0));
  return Survival(page, local_rank, facts->round, kEndedWithin + lost_after);
}

void Survival::forgo() const { ask("stay", ",\"stays\":0"); }

NextRound Survival::await_next_round(const std::string& why) {
  const auto say_quiet = [this] { ask("quiet", ",\"round\":" + std::to_string(round_)); };
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
  const rendezvous::DescriptorMessage answer =
      ask("connections", std::string(",\"others\":") + (are_others ? "1" : "0") + ",\"sockets\":\"" + inodes + "\"");
  return rendezvous::number_in(answer.text, "ends_them") == 1;
}

}  // namespace ddp::runtime
