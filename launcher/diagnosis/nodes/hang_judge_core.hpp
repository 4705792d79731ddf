// SPDX-License-Identifier: BSD-3-Clause
// Decides, on one node of several, when all of the job stands still, and whether this node is the one that finds the
// culprit. It maps what this node and the others say to what to ask next, and holds no clock, link or process.
//
//     Working ──own proof holds──▶ Waiting ──its turn──▶ asks all: do you stand still? ──all do──▶ asks for stacks
//        ▲                            ▲  ◀──── somebody works, or nobody can be asked ────┘             │
//        └── progress (any state)     └──────────── a judge of a lower node rank asks           tells everybody: Told
//
// The job stands still if all its nodes do. Where all workers of all nodes show steps, it does if any node does: the
// oldest step of all is the measure, as on one node.
//
// The nodes' turns follow their node ranks, so that node 0 judges: node N waits N turns, from when it stands still or
// was last asked by a node before it. So the next one judges where node 0 does not run.
//
// A node that does not answer twice in a row is the culprit: nothing is known of its workers.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/diagnosis/nodes/node_stillness.hpp"

namespace ddp::launcher {

class HangJudgeCore {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Next { Nothing, AskStacks };
  // What each node of the round has answered, by node rank; nothing: it has not.
  using Words = std::map<int, std::optional<NodeStillness>>;

  explicit HangJudgeCore(std::chrono::milliseconds timeout);

  // The workers of a round start, or are stopped: nothing is known of them.
  void begin(int node_rank);
  // The workers of this node stand still: that is proved.
  void stands_still(TimePoint now);
  // They make progress again. Returns whether they had a verdict.
  bool goes_on();
  // A node of this rank asks all others, this one included.
  void note_judge(TimePoint now, int node_rank);
  // This node or another has told a verdict. Returns whether it is the first one.
  bool note_verdict();

  // Returns when to ask all nodes whether they stand still; nothing: not now.
  std::optional<TimePoint> ask_at() const;
  // Takes in what they answered; empty: they could not be asked. After AskStacks, the verdict is to be told if
  // judges() is still true once the stacks are there.
  Next hear(TimePoint now, const Words& words);
  // No node has taken stacks: they are asked again later.
  void lack_stacks(TimePoint now);
  bool judges() const { return state_ == State::Judging; }
  // Returns the node ranks that have not answered, after AskStacks.
  const std::set<int>& silent() const { return silent_; }

 private:
  enum class State { Working, Waiting, Judging, Told };

  std::chrono::milliseconds turns() const;
  void ask_again_after(TimePoint now);

  const std::chrono::milliseconds timeout_;
  State state_ = State::Working;
  int node_rank_ = 0;
  TimePoint ask_at_;
  std::set<int> silent_;  // when they were last asked
};

}  // namespace ddp::launcher
