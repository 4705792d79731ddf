// SPDX-License-Identifier: BSD-3-Clause
// How a worker stays in its job when others fail (ddprun --on-failure replace or shrink): it says so to its agent, says
// that it is quiet once it has left the groups of a round, and learns of the next round from the agent's page.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/agent_page.hpp"

namespace ddp::runtime {

// This process's place in a round.
struct NextRound {
  int round = 0;
  int rank = 0, world_size = 0, local_rank = 0, local_world_size = 0, restart_count = 0;
  int node_rank = 0, node_count = 0;
  std::string master_addr;
  std::uint16_t master_port = 0;
};

class Survival {
 public:
  // Says that this process stays. Returns nothing if its job does not keep survivors, or no ddprun has started it.
  // Throws rendezvous::Error.
  static std::optional<Survival> of_this_process();
  // Says that it stays no longer.
  void forgo() const;

  // Says that this process is quiet, and blocks until the next round begins: as long as ddprun takes, but no longer
  // than it may need to notice a loss if it does not end the round that failed. `why` is what made this process leave
  // it. Throws rendezvous::Error.
  NextRound await_next_round(const std::string& why);
  // Returns whether ddprun has ended the round that this process is in; waits for that, at most for so long. Without a
  // timeout it waits for as long as ddprun may need to notice a loss.
  bool await_end(std::optional<std::chrono::milliseconds> timeout) const;
  // Says which TCP sockets of this process, by their inodes, the agent ends when it ends the round: these, or all
  // others that are connected then. Returns whether the agent may do so here. Throws rendezvous::Error.
  bool say_connections(const std::string& inodes, bool are_others) const;

 private:
  Survival(const rendezvous::NodePage* page, int local_rank, int round, std::chrono::milliseconds ended_within)
      : page_(page), local_rank_(local_rank), round_(round), ended_within_(ended_within) {}

  const rendezvous::NodePage* page_;  // mapped to the end of the process
  int local_rank_;
  int round_;  // the round that this process is in, or has left last
  // Time for ddprun to end a round whose groups have failed. A node that falls silent is lost only after a while.
  std::chrono::milliseconds ended_within_;
};

}  // namespace ddp::runtime
