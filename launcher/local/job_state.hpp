// SPDX-License-Identifier: BSD-3-Clause
// The state of a whole job, for programs that look at it (`ddprun ps JOB`), as JSON on one line:
//
//     {"version":1,"job":"none","program":"train.py","phase":"running","round":2,"restarts":1,"max_restarts":3,
//      "min_nodes":2,"max_nodes":2,"world_size":4,"seconds":812,"seconds_in_round":240,"step":40,"slow_rank":null,
//      "slow_rank_why":null,"error":null,
//      "nodes":[{"host":"a","address":"","node_rank":0,"base_rank":0,"state":"running","seated":true,
//                "coordinator":true,"asked":true,"incarnation":"...","slots":2,"slow_link":null,
//                "error":null,
//                "pid":4711,"agent":4713,"seconds":812,"seconds_in_round":240,"round":2,"phase":"running",
//                "workers":[{"rank":0,...}]},
//               {"host":"b","address":"10.0.0.2","node_rank":1,...,"error":"it did not answer in time","workers":[]}]}
//
// Facts about the job are the coordinator's; what is in a node is what that node's agent says (agent_state.hpp, which
// has the members of a worker). `asked` is the node at whose socket the program asked; `node_rank` is -1, and `seated`
// false, for a node that has no place in this round, such as a spare. `step` is the lowest one of all workers, null
// until each has shown one. `slow_rank` is the rank that others wait for, null if none stands out, and
// `slow_rank_why` says by how much. `slow_link` says why a node is slow whose link takes much longer than the others
// (link_delay.hpp), and is null for all others. `error` of the job says why it is not shown whole.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/local/agent_state.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

struct NodeState {
  rendezvous::JobFacts::Node facts;
  bool is_coordinator = false, is_asked = false;
  std::optional<AgentView> view = {};  // nothing: it did not answer, see error
  std::string error = {};
};

struct JobState {
  std::string job, program;
  rendezvous::JobFacts facts;  // its nodes are in `nodes`
  std::vector<NodeState> nodes;
  std::string error = {};  // why it is not the whole job; empty: it is

  int world_size() const;
  std::int64_t seconds() const;           // how long the node that has run longest has done so
  std::int64_t seconds_in_round() const;  // how long it has been in this round
  std::optional<std::int64_t> step() const;
  // Returns the rank that is clearly slower than all others: it spends less of its time in collectives, where they wait
  // for it, or it shows less steps in a second. Nothing: no rank stands out, or workers show neither.
  struct SlowRank {
    int rank = 0;
    std::string why;  // "the others wait for it 52 % of the time"
  };
  std::optional<SlowRank> slow_rank() const;
  // Returns why nodes are slow whose links take much longer than those of the others, by their place in `nodes`.
  std::map<std::size_t, std::string> slow_links() const;
};

// Puts together what the coordinator knows and what its nodes have answered, by incarnation. `own` is what the agent
// that was asked says itself; `error` is empty, or says why the coordinator said nothing.
JobState assemble(rendezvous::JobFacts facts, const std::map<std::string, std::string>& answers,
                  const std::string& own_incarnation, const AgentView& own, const std::string& error);

std::string to_json(const JobState& state);

// Returns what to_json() wrote; nothing if the text is something else, such as a refusal.
std::optional<JobState> job_state(std::string_view json);

}  // namespace ddp::launcher
