// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/agent_state.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/text/json_text.hpp"
#include "launcher/text/ranges.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/shallow_json.hpp"

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

std::string decimal(double number) {
  char text[40];
  snprintf(text, sizeof text, "%.3f", number);
  return text;
}

std::string worker_json(const WorkerView& worker) {
  JsonObject json;
  json.number("rank", worker.rank).number("local_rank", worker.local_rank).number("pid", worker.pid);
  json.number("step", worker.step);
  if (worker.step) json.number("seconds_since_step", worker.seconds_since_step);
  json.json("steps_per_second", worker.steps_per_second ? decimal(*worker.steps_per_second) : "null");
  if (!worker.now_in.empty()) json.text("now_in", worker.now_in).number("milliseconds_in", worker.milliseconds_in);
  if (worker.in_collectives_percent) json.number("in_collectives_percent", *worker.in_collectives_percent);
  if (!worker.usage) return json.json("state", "null").str();
  const WorkerUsage& usage = *worker.usage;
  json.text("state", usage.state).json("cpu_seconds", decimal(static_cast<double>(usage.cpu_ms) / 1000));
  return json.number("rss_bytes", usage.rss).number("threads", usage.threads).str();
}

WorkerView worker_view(const nlohmann::json& worker) {
  WorkerView view{.rank = worker.at("rank"), .pid = worker.at("pid"), .local_rank = worker.value("local_rank", 0)};
  if (!worker.at("step").is_null()) {
    view.step = worker.at("step");
    view.seconds_since_step = worker.at("seconds_since_step");
  }
  if (worker.contains("steps_per_second") && !worker.at("steps_per_second").is_null()) {
    view.steps_per_second = worker.at("steps_per_second").get<double>();
  }
  view.now_in = worker.value("now_in", "");
  view.milliseconds_in = worker.value("milliseconds_in", std::int64_t{0});
  if (worker.contains("in_collectives_percent")) {
    view.in_collectives_percent = worker.at("in_collectives_percent").get<int>();
  }
  if (!worker.contains("rss_bytes")) return view;  // it has just ended, or an older release does not say it
  view.usage = WorkerUsage{.state = worker.at("state"),
                           .cpu_ms = static_cast<std::int64_t>(worker.at("cpu_seconds").get<double>() * 1000),
                           .rss = worker.at("rss_bytes"),
                           .threads = worker.at("threads")};
  return view;
}

std::string gpus_json(const std::vector<GpuView>& gpus) {
  std::string list;
  for (const GpuView& gpu : gpus) {
    JsonObject json;
    json.number("index", gpu.index);
    json.number("use_percent", gpu.percent >= 0 ? std::optional<std::int64_t>(gpu.percent) : std::nullopt);
    json.number("memory_bytes", gpu.memory).number("memory_total_bytes", gpu.capacity);
    list += (list.empty() ? "" : ",") + json.json("ranks", "[" + comma_list(gpu.ranks) + "]").str();
  }
  return "[" + list + "]";
}

GpuView gpu_view(const nlohmann::json& gpu) {
  return {.index = gpu.at("index"),
          .percent = gpu.at("use_percent").is_null() ? -1 : gpu.at("use_percent").get<int>(),
          .memory = gpu.at("memory_bytes"),
          .capacity = gpu.at("memory_total_bytes"),
          .ranks = gpu.at("ranks").get<std::vector<int>>()};
}

rendezvous::NodePhase phase_in(const std::string& word) {
  for (const auto phase : {rendezvous::NodePhase::Running, rendezvous::NodePhase::Stopping}) {
    if (word == name_of(phase)) return phase;
  }
  return rendezvous::NodePhase::Idle;
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

void add_node_members(JsonObject& json, const AgentView& view) {
  std::string workers;
  for (const WorkerView& worker : view.workers) workers += (workers.empty() ? "" : ",") + worker_json(worker);
  json.number("pid", view.pid).number("agent", view.agent_pid).number("seconds", view.seconds);
  json.number("seconds_in_round", view.seconds_in_round).number("round", view.facts.round);
  json.text("phase", view.phase.empty() ? name_of(view.facts.phase) : view.phase);
  json.number("round_trip_us", view.link ? std::optional(view.link->microseconds) : std::nullopt);
  json.number("round_trips", view.link ? view.link->round_trips : 0);
  json.json("log_folder", view.log_folder.empty() ? "null" : quoted_json(view.log_folder));
  json.json("gpus", gpus_json(view.gpus));
  json.json("workers", "[" + workers + "]");
}

std::string to_json(const AgentView& view) {
  const rendezvous::NodeFacts& facts = view.facts;
  JsonObject json;
  json.number("version", rendezvous::kAgentSocketVersion).text("job", view.job).text("program", view.program);
  json.text("host", view.host).number("node_rank", facts.node_rank).number("nodes", facts.node_count);
  json.number("restarts", facts.restart_count).number("world_size", facts.world_size);
  json.number("step", lowest_step(view.workers)).text("epoch", view.epoch);
  add_node_members(json, view);
  return json.str();
}

std::optional<AgentView> agent_view(std::string_view json) {
  try {
    const auto object = rendezvous::parse_shallow(json);
    AgentView view;
    view.job = object.value("job", "");
    view.program = object.value("program", "");
    view.host = object.at("host");
    view.pid = object.at("pid");
    view.agent_pid = object.value("agent", 0);
    view.seconds = object.at("seconds");
    view.epoch = object.value("epoch", "");
    view.seconds_in_round = object.value("seconds_in_round", std::int64_t{0});
    if (object.contains("log_folder") && object.at("log_folder").is_string()) view.log_folder = object.at("log_folder");
    view.facts.round = object.at("round");
    view.phase = object.at("phase");
    view.facts.phase = phase_in(view.phase);
    if (object.contains("round_trip_us") && object.at("round_trip_us").is_number_integer()) {
      view.link = LinkDelay{object.at("round_trip_us"), object.value("round_trips", 0)};
    }
    for (const auto& gpu : object.value("gpus", nlohmann::json::array())) view.gpus.push_back(gpu_view(gpu));
    for (const auto& worker : object.at("workers")) view.workers.push_back(worker_view(worker));
    return view;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
