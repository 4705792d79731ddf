// SPDX-License-Identifier: BSD-3-Clause
// Says which ranks a job that stands still waits for, from the stacks and calls of all its workers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

enum class Guilt {
  Ended,     // they have ended, while others wait in a distributed call
  Stopped,   // a signal or a debugger has stopped them
  Awaited,   // all others wait for them, as the calls of libddp show, directly or one after the other
  Deadlock,  // as those show, they wait for each other
  Outside,   // they are in no distributed call, while others wait in one
  Fewest,    // they are in another call, or at another line, than most
  Everyone,  // all ranks are at one place
  Silent,    // their node does not answer, so that nothing is known of them
};
// Returns the name of a verdict in the log: "ended".
const char* name_of(Guilt guilt);

struct Culprit {
  std::vector<int> ranks;
  Guilt guilt = Guilt::Everyone;
  std::string place;  // "train.py:88", the innermost line of the user's; empty if none is known or the ranks have ended
  std::string words;  // "rank 2 is late: in clock_nanosleep, called at train.py:88 (load); ranks 0-1, 3 wait: in ..."
};

// `ended` holds how workers ended that are no more, by rank: "exited with code 0". `workers` must not be empty. Each
// rule counts only where the ones before it, in the order of Guilt, name no rank.
Culprit find_culprit(const std::vector<WorkerStacks>& workers, const std::map<int, std::string>& ended);

// A node that was asked for its stacks and does not answer, with its ranks.
struct SilentNode {
  std::string host;
  std::vector<int> ranks;
};
// Says that these nodes are silent, and what the workers of the others do. `nodes` must not be empty.
Culprit accuse_silent(const std::vector<SilentNode>& nodes, const std::vector<WorkerStacks>& others);

}  // namespace ddp::launcher
