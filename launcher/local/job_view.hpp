// SPDX-License-Identifier: BSD-3-Clause
// What an agent says of its part of a job to processes of the same machine, as JSON on one line:
//
//     {"version":1,"job":"none","program":"train.py","host":"a","node_rank":0,"nodes":1,"restarts":1,"world_size":2,
//      "step":40,"epoch":"5d1f0e6a9c3b7284","pid":4711,"agent":4713,"seconds":12,"seconds_in_round":8,"round":2,
//      "phase":"running","log_folder":"/tmp/none_x7","round_trip_us":310,"round_trips":20,
//      "gpus":[{"index":0,"use_percent":97,"memory_bytes":...,"memory_total_bytes":...,"ranks":[0]}],
//      "workers":[{"rank":0,"local_rank":0,"pid":4714,"step":41,"seconds_since_step":1,"steps_per_second":2.5,
//                  "state":"runs","cpu_seconds":7.21,"rss_bytes":104857600,"threads":9,
//                  "now_in":"all_reduce #412 of group world","milliseconds_in":31,"in_collectives_percent":12},
//                 {"rank":1,"local_rank":1,"pid":4715,"step":40,...}]}
//
// `pid` is the process that the user started, `agent` the one that answers. `step` of the job is the lowest step of its
// workers here; it is null until all of them have shown one. `steps_per_second` is null, and `gpus` is empty, at the
// first look. `phase` is "running", "stopping", "quiet" (its workers live and wait for the next round), "waiting" (for
// the first round or another one), or "done" (its workers have ended well, and those of other nodes run).
// `round_trip_us` is what the link to the coordinator takes, and null at the coordinator's own node (link_delay.hpp).
// What a worker uses is as /proc says it; `log_folder` is null where workers' output is in no files;
// `state` is null and the numbers are missing if it has just ended. `now_in` names the collective or message that
// a worker of libddp waits in; it is missing where there is none. `in_collectives_percent` is the share of a worker's
// time that its collectives took, as far back as its records go.
//
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
// Facts about the job are the coordinator's; what is in a node is what that node's agent says. `asked` is the node at
// whose socket the program asked; `node_rank` is -1, and `seated` false, for a node that has no place in this round,
// such as a spare. `step` is the lowest one of all workers, null until each has shown one. `slow_rank` is the rank that
// others wait for, null if none stands out, and `slow_rank_why` says by how much. `slow_link` says why a node is slow
// whose link takes much longer than the others (link_delay.hpp), and is null for all others. `error` of the job says
// why it is not shown whole.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/local/link_delay.hpp"
#include "launcher/local/worker_usage.hpp"
#include "rendezvous/agent_page.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

struct WorkerView {
  int rank = 0;
  pid_t pid = 0;
  int local_rank = 0;
  std::optional<std::int64_t> step = {};
  std::int64_t seconds_since_step = 0;
  std::optional<double> steps_per_second = {};
  std::optional<WorkerUsage> usage = {};
  std::string now_in = {};                         // "all_reduce #412 of group world", if it uses libddp
  std::int64_t milliseconds_in = 0;                // since it called that
  std::optional<int> in_collectives_percent = {};  // share of its time
};

struct GpuView {
  int index = 0;                          // as NVML counts
  int percent = -1;                       // share of the time in which something ran on it; -1: not known
  std::int64_t memory = 0, capacity = 0;  // bytes that are used, and that there are
  std::vector<int> ranks = {};            // workers of this node that compute on it
};

struct AgentView {
  std::string job, program, host;
  int pid = 0;
  int agent_pid = 0;         // 0: an older release's, which does not say it
  std::int64_t seconds = 0;  // since the agent began
  std::int64_t seconds_in_round = 0;
  std::string epoch = {};  // names the job: all of its agents say the same; empty before the first round
  rendezvous::NodeFacts facts = {};
  std::string phase = {};  // a word that its workers do not need, such as "quiet"; empty: facts.phase tells all
  std::optional<LinkDelay> link = {};
  std::string log_folder = {};      // with the workers' files; empty: they have none
  std::vector<GpuView> gpus = {};   // all that the node has; none at the first look
  std::vector<WorkerView> workers;  // those that run

  std::optional<std::int64_t> step() const;  // as in the JSON
};

std::string to_json(const AgentView& view);
// Returns what to_json() wrote; nothing if the text is something else, such as a refusal.
std::optional<AgentView> agent_view(std::string_view json);

struct NodeView {
  rendezvous::JobFacts::Node facts;
  bool is_coordinator = false, is_asked = false;
  std::optional<AgentView> view = {};  // nothing: it did not answer, see error
  std::string slow_link = {};          // as in the JSON
  std::string error = {};
};

struct JobView {
  std::string job, program;
  rendezvous::JobFacts facts;  // its nodes are in `nodes`
  std::vector<NodeView> nodes;
  std::string error = {};  // why it is not the whole job; empty: it is

  int world_size() const;
  std::int64_t seconds() const;           // how long the node that has run longest has done so
  std::int64_t seconds_in_round() const;  // how long it has been in this round
  std::optional<std::int64_t> step() const;
  // Returns the straggler: a rank that spends clearly less time in collectives than all other ranks, which wait for the
  // straggler there, or that shows clearly fewer steps in a second. Nothing: no rank stands out, or workers show
  // neither.
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
JobView assemble(rendezvous::JobFacts facts, const std::map<std::string, std::string>& answers,
                 const std::string& own_incarnation, const AgentView& own, const std::string& error);

std::string to_json(const JobView& state);

// Returns what to_json() wrote; nothing if the text is something else, such as a refusal.
std::optional<JobView> job_view(std::string_view json);

}  // namespace ddp::launcher
