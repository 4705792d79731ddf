// SPDX-License-Identifier: BSD-3-Clause
// Finds out, with the other nodes of a job, which rank all of it waits for (--hang-timeout): HangJudgeCore decides,
// this asks and tells. The node that judges takes the facts of all nodes, so that there is one verdict, and passes it
// on; each node logs it. Everything happens on io's thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/diagnosis/hang_watch.hpp"
#include "launcher/diagnosis/nodes/hang_judge_core.hpp"
#include "launcher/output/log.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// What a node asks all others: whether they stand still, and that they log a verdict.
inline constexpr char kStillnessQuestion[] = "stillness";
inline constexpr char kVerdictOrder[] = "verdict";

class HangJudge {
 public:
  // What a node of the round has answered.
  struct Answer : rendezvous::JobFacts::Node {
    std::string text;  // empty: it has not
  };
  using Answered = std::function<void(const std::vector<Answer>&)>;  // empty: nobody could be asked
  struct Sources {
    // Asks all nodes of the round, this one included: `text` is JSON.
    std::function<void(const std::string& what, const std::string& text, Answered answered)> ask;
    std::function<NodeStillness()> stillness;  // what this node says of itself
  };

  // `found` is called on the node that has judged, once the verdict is logged and on its way to the others.
  HangJudge(rendezvous::asio::io_context& io, std::chrono::milliseconds timeout, std::string host, Sources sources,
            Log& log, std::function<void(const Hang&)> found);

  // The workers of a round start, or are to be stopped.
  void begin(int node_rank);
  void end() { begin(node_rank_); }
  // This node's workers stand still, or make progress.
  void stands_still();
  void goes_on();

  // Answer what another node asks, or this one, as JSON.
  std::string answer_stillness(const std::string& text);
  std::string take_verdict(const std::string& text);

 private:
  void wait();
  void ask();
  void hear(const std::vector<Answer>& answers);
  void judge(const std::vector<Answer>& stacks);
  void warn_of_unwatched(const std::map<int, std::optional<NodeStillness>>& words, const std::vector<Answer>& answers);

  const std::string host_;
  const Sources sources_;
  Log& log_;
  const std::function<void(const Hang&)> found_;
  HangJudgeCore core_;
  rendezvous::asio::steady_timer timer_;
  int node_rank_ = 0;
  HangJudgeCore::Words words_;  // the newest ones
  std::string own_verdict_;     // as it was passed on: it comes back to this node, too
  int asked_ = 0;               // counts questions: an answer to an older one is late
  bool has_warned_ = false;
};

}  // namespace ddp::launcher
