// SPDX-License-Identifier: BSD-3-Clause
// What an agent says of its part of a job to processes of the same machine, as JSON on one line:
//
//     {"version":1,"job":"none","pid":4711,"agent":4713,"program":"train.py","host":"a","seconds":12,
//      "node_rank":0,"nodes":1,"round":2,"restarts":1,"phase":"running","world_size":2,"step":40,
//      "workers":[{"rank":0,"pid":4714,"step":41,"seconds_since_step":1},{"rank":1,"pid":4715,"step":40,...}]}
//
// `pid` is the process that the user started, `agent` the one that answers. `step` of the job is the lowest step of its
// workers here; it is null until all of them have shown one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/agent_page.hpp"

namespace ddp::launcher {

struct WorkerView {
  int rank = 0;
  pid_t pid = 0;
  std::optional<std::int64_t> step = {};
  std::int64_t seconds_since_step = 0;
};

struct AgentView {
  std::string job, program, host;
  int pid = 0;
  int agent_pid = 0;         // 0: an older release's, which does not say it
  std::int64_t seconds = 0;  // since the agent began
  rendezvous::NodeFacts facts = {};
  std::vector<WorkerView> workers;  // those that run
};

std::string to_json(const AgentView& view);

// Returns what to_json() wrote, without `facts`; nothing if the text is something else, such as a refusal.
std::optional<AgentView> agent_view(std::string_view json);

}  // namespace ddp::launcher
