// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/hang_judge_core.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAgainAtLeast{200}, kAgainAtMost{30'000};
constexpr milliseconds kAnswerTakes{3000};  // a judge may take this long to ask all others, and more

}  // namespace

HangJudgeCore::HangJudgeCore(milliseconds timeout) : timeout_(timeout) {}

milliseconds HangJudgeCore::turns() const { return node_rank_ * (timeout_ + kAnswerTakes); }

void HangJudgeCore::begin(int node_rank) {
  node_rank_ = node_rank;
  state_ = State::Working;
  silent_.clear();
}

void HangJudgeCore::stands_still(TimePoint now) {
  if (state_ != State::Working) return;  // it is known already
  state_ = State::Waiting;
  silent_.clear();
  ask_at_ = now + turns();
}

bool HangJudgeCore::goes_on() { return std::exchange(state_, State::Working) == State::Told; }

void HangJudgeCore::note_judge(TimePoint now, int node_rank) {
  if (node_rank < node_rank_ && state_ == State::Waiting) ask_at_ = now + turns();
}

bool HangJudgeCore::note_verdict() { return std::exchange(state_, State::Told) != State::Told; }

std::optional<HangJudgeCore::TimePoint> HangJudgeCore::ask_at() const {
  return state_ == State::Waiting ? std::optional(ask_at_) : std::nullopt;
}

void HangJudgeCore::ask_again_after(TimePoint now) {
  ask_at_ = now + std::clamp(timeout_ / 4, kAgainAtLeast, kAgainAtMost);
}

void HangJudgeCore::lack_stacks(TimePoint now) {
  state_ = State::Waiting;
  ask_again_after(now);
}

HangJudgeCore::Next HangJudgeCore::hear(TimePoint now, const Words& words) {
  if (state_ != State::Waiting) return Next::Nothing;  // progress or a verdict came meanwhile
  ask_again_after(now);
  std::set<int> silent;
  bool all_still = true, all_show_steps = true;
  for (const auto& [node_rank, said] : words) {
    if (!said) silent.insert(node_rank);
    all_still = all_still && (!said || said->is_still);
    all_show_steps = all_show_steps && said && said->shows_steps;
  }
  const bool is_answered = silent == std::exchange(silent_, silent);  // all are there, or the same are missing again
  if (words.empty() || !is_answered || (!all_still && !all_show_steps)) return Next::Nothing;
  state_ = State::Judging;
  return Next::AskStacks;
}

}  // namespace ddp::launcher
