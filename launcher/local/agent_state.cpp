// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_state.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

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
    case rendezvous::NodePhase::Revoked:
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
  json.number("agent", view.agent_pid);
  json.text("program", view.program).text("host", view.host).number("seconds", view.seconds);
  json.number("node_rank", facts.node_rank).number("nodes", facts.node_count).number("round", facts.round);
  json.number("restarts", facts.restart_count).text("phase", name_of(facts.phase));
  json.number("world_size", facts.world_size).number("step", lowest_step(view.workers));
  return json.json("workers", "[" + workers + "]").str();
}

std::optional<AgentView> agent_view(std::string_view json) {
  try {
    const auto object = nlohmann::json::parse(json);
    AgentView view;
    view.job = object.at("job");
    view.program = object.at("program");
    view.host = object.at("host");
    view.pid = object.at("pid");
    view.agent_pid = object.value("agent", 0);
    view.seconds = object.at("seconds");
    for (const auto& worker : object.at("workers")) {
      WorkerView& shown = view.workers.emplace_back(WorkerView{worker.at("rank"), worker.at("pid")});
      if (!worker.at("step").is_null()) {
        shown.step = worker.at("step");
        shown.seconds_since_step = worker.at("seconds_since_step");
      }
    }
    return view;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
