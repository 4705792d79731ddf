// SPDX-License-Identifier: BSD-3-Clause
// Watches whether the workers of this node make progress (--hang-timeout): HangCore decides, this collects what it
// asks for. Everything happens on io's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnosis/culprit.hpp"
#include "launcher/diagnosis/hang_core.hpp"
#include "launcher/diagnosis/nodes/node_stillness.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "launcher/diagnosis/stacks/stack.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

struct Hang {
  Culprit culprit;
  std::string since;  // see describe_since()
  std::vector<WorkerStacks> stacks;
  std::string links = {};  // what the links of the nodes take: "b 0.3 ms, c 105 ms"; empty: there are none
};

// Returns "no output and no step for 30 s, since 13:05:02".
std::string describe_since(std::chrono::milliseconds still);
// Returns the line about the links of a hang's nodes.
std::string describe_hang_links(const std::string& links);

class HangWatch {
 public:
  struct Sources {
    std::function<std::vector<StackHelper::Worker>()> workers;  // those that run
    std::function<std::int64_t(int rank)> step_at;              // as in WorkerSigns
    std::function<std::uint64_t()> output;                      // as in Signs
    std::function<std::optional<LinkDelay>()> link;             // to the coordinator
  };
  struct Callbacks {
    std::function<void(const Hang&)> stands_still;  // once, until they go on
    std::function<void()> goes_on;                  // after that
    // In a job of several nodes, instead of the first: what the workers of this node do is only a part of the verdict.
    // Then goes_on is called at each sign of progress.
    std::function<void()> proof_holds = {};
  };

  // A timeout of 0 watches nothing.
  HangWatch(rendezvous::asio::io_context& io, std::chrono::milliseconds timeout, Sources sources, Callbacks callbacks);

  // Returns what this node says of itself when a node asks all.
  NodeStillness stillness() const;

  // The workers of a round have started.
  void begin();
  // A worker has ended well: `how` is "exited with code 0".
  void note_end(int rank, std::string how) { ended_[rank] = std::move(how); }
  // Ctrl-Z stops the workers, and they go on later.
  void suspend();
  void resume();
  // The workers are about to be stopped, or one of them has failed.
  void end();

 private:
  void wait();
  void look();
  void prove(const std::vector<WorkerStacks>& stacks);
  std::chrono::milliseconds still_for() const;
  Hang describe(const std::vector<WorkerStacks>& stacks) const;

  const std::chrono::milliseconds timeout_;
  const Sources sources_;
  const Callbacks callbacks_;
  HangCore core_;
  StackHelper helper_;
  rendezvous::asio::steady_timer timer_;
  std::map<int, std::string> ended_;
  std::map<int, WorkerActivity> activity_;  // when the newest stacks were asked for
  bool is_watching_ = false;
};

}  // namespace ddp::launcher
