// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_state.hpp"

#include <algorithm>

#include "launcher/text/json_text.hpp"
#include "rendezvous/agent_client.hpp"

namespace ddp::launcher {
namespace {

const char* name_of(rendezvous::NodePhase phase) {
  switch (phase) {
    case rendezvous::NodePhase::Idle:
      return "idle";
    case rendezvous::NodePhase::Running:
      return "running";
    case rendezvous::NodePhase::Stopping:
      return "stopping";
  }
  return "unknown";
}

std::string worker_json(const WorkerView& worker) {
  JsonObject json;
  json.number("rank", worker.rank).number("pid", worker.pid).number("step", worker.step);
  if (worker.step) json.number("seconds_since_step", worker.seconds_since_step);
  return json.str();
}

std::optional<std::int64_t> lowest_step(const std::vector<WorkerView>& workers) {
  std::optional<std::int64_t> lowest;
  for (const WorkerView& worker : workers) {
    if (!worker.step) return std::nullopt;
    lowest = std::min(lowest.value_or(*worker.step), *worker.step);
  }
  return lowest;
}

}  // namespace

std::string to_json(const AgentView& view) {
  std::string workers;
  for (const WorkerView& worker : view.workers) workers += (workers.empty() ? "" : ",") + worker_json(worker);
  const rendezvous::NodeFacts& facts = view.facts;
  JsonObject json;
  json.number("version", rendezvous::kAgentSocketVersion).text("job", view.job).number("pid", view.pid);
  json.text("program", view.program).text("host", view.host).number("seconds", view.seconds);
  json.number("node_rank", facts.node_rank).number("nodes", facts.node_count).number("round", facts.round);
  json.number("restarts", facts.restart_count).text("phase", name_of(facts.phase));
  json.number("world_size", facts.world_size).number("step", lowest_step(view.workers));
  return json.json("workers", "[" + workers + "]").str();
}

}  // namespace ddp::launcher
