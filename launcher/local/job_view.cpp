// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/job_view.hpp"

#include <algorithm>
#include <utility>

#include "launcher/local/job_answers.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::JobFacts;

constexpr int kStandsOut = 20;  // percent: less is noise

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

rendezvous::NodePhase phase_in(const std::string& word) {
  for (const auto phase : {rendezvous::NodePhase::Running, rendezvous::NodePhase::Stopping}) {
    if (word == name_of(phase)) return phase;
  }
  return rendezvous::NodePhase::Idle;
}

}  // namespace

template <typename Json>
void members(Json& json, WorkerView& worker) {
  std::optional<std::string> state;
  std::optional<double> cpu_seconds;
  std::optional<std::int64_t> rss, threads;
  if (worker.usage) {
    state = worker.usage->state;
    cpu_seconds = static_cast<double>(worker.usage->cpu_ms) / 1000;
    rss = worker.usage->rss;
    threads = worker.usage->threads;
  }
  json.must("rank", worker.rank)("local_rank", worker.local_rank).must("pid", worker.pid)("step", worker.step);
  if (worker.step) json.must("seconds_since_step", worker.seconds_since_step);
  json("steps_per_second", worker.steps_per_second).rest("now_in", worker.now_in);
  if (!worker.now_in.empty()) json("milliseconds_in", worker.milliseconds_in);
  json.rest("in_collectives_percent", worker.in_collectives_percent)("state", state);
  json.rest("cpu_seconds", cpu_seconds).rest("rss_bytes", rss).rest("threads", threads);
  if (!Json::kReads || !state || !rss) return;  // it has just ended, or an older release does not say it
  worker.usage =
      WorkerUsage{*state, static_cast<std::int64_t>(cpu_seconds.value_or(0) * 1000), *rss, threads.value_or(0)};
}

template <typename Json>
void members(Json& json, GpuView& gpu) {
  std::optional<int> percent = gpu.percent >= 0 ? std::optional(gpu.percent) : std::nullopt;
  json.must("index", gpu.index)("use_percent", percent).must("memory_bytes", gpu.memory);
  json.must("memory_total_bytes", gpu.capacity).must("ranks", gpu.ranks);
  if constexpr (Json::kReads) gpu.percent = percent.value_or(-1);
}

// The members that are about one node alone, after its pid.
template <typename Json>
void node_members(Json& json, AgentView& view) {
  std::string phase = view.phase.empty() ? name_of(view.facts.phase) : view.phase;
  std::optional<std::int64_t> round_trip = view.link ? std::optional(view.link->microseconds) : std::nullopt;
  int round_trips = view.link ? view.link->round_trips : 0;
  json("agent", view.agent_pid).must("seconds", view.seconds)("seconds_in_round", view.seconds_in_round);
  json.must("round", view.facts.round).must("phase", phase);
  json("round_trip_us", round_trip)("round_trips", round_trips).words("log_folder", view.log_folder);
  json("gpus", view.gpus).must("workers", view.workers);
  if constexpr (Json::kReads) {
    view.phase = phase;
    view.facts.phase = phase_in(phase);
    if (round_trip) view.link = LinkDelay{*round_trip, round_trips};
  }
}

template <typename Json>
void members(Json& json, AgentView& view) {
  rendezvous::NodeFacts& facts = view.facts;
  int version = kShownVersion;
  std::optional<std::int64_t> step = view.step();
  json("version", version)("job", view.job)("program", view.program).must("host", view.host);
  json("node_rank", facts.node_rank)("nodes", facts.node_count)("restarts", facts.restart_count);
  json("world_size", facts.world_size)("step", step)("epoch", view.epoch).must("pid", view.pid);
  node_members(json, view);
}

template <typename Json>
void members(Json& json, NodeView& node) {
  JobFacts::Node& facts = node.facts;
  bool is_seated = facts.node_rank >= 0;
  std::optional<int> pid = node.view ? std::optional(node.view->pid) : std::nullopt;
  json.must("host", facts.host).must("address", facts.address).must("node_rank", facts.node_rank);
  json.must("base_rank", facts.base_rank).must("state", facts.state)("seated", is_seated);
  json.must("coordinator", node.is_coordinator).must("asked", node.is_asked);
  json.must("incarnation", facts.incarnation).must("slots", facts.slots);
  json.words("slow_link", node.slow_link).words("error", node.error).rest("pid", pid);
  std::vector<WorkerView> none;
  if (!pid) return void(json("workers", none));
  if constexpr (Json::kReads) {
    node.view.emplace().host = facts.host;
    node.view->pid = *pid;
  }
  node_members(json, *node.view);
}

template <typename Json>
void members(Json& json, JobView& job) {
  JobFacts& facts = job.facts;
  int version = kShownVersion, world_size = job.world_size();
  std::int64_t seconds = job.seconds(), in_round = job.seconds_in_round();
  std::optional<std::int64_t> step = job.step();
  const auto slow = job.slow_rank();
  std::optional<int> slow_rank = slow ? std::optional(slow->rank) : std::nullopt;
  std::string why_slow = slow ? slow->why : "";
  json("version", version).must("job", job.job).must("program", job.program).must("phase", facts.phase);
  json.must("round", facts.round).must("restarts", facts.restarts).must("max_restarts", facts.max_restarts);
  json.must("min_nodes", facts.min_nodes).must("max_nodes", facts.max_nodes)("world_size", world_size);
  json("seconds", seconds)("seconds_in_round", in_round)("step", step)("slow_rank", slow_rank);
  json.words("slow_rank_why", why_slow).words("error", job.error).must("nodes", job.nodes);
}

std::string to_json(const AgentView& view) { return rendezvous::json_of(view); }
std::optional<AgentView> agent_view(std::string_view json) { return rendezvous::read_json<AgentView>(json); }

std::optional<std::int64_t> AgentView::step() const {
  std::optional<std::int64_t> lowest;
  for (const WorkerView& worker : workers) {
    if (!worker.step) return std::nullopt;
    lowest = std::min(lowest.value_or(*worker.step), *worker.step);
  }
  return lowest;
}

int JobView::world_size() const {
  int workers = 0;
  for (const NodeView& node : nodes) workers += node.facts.node_rank >= 0 ? node.facts.slots : 0;
  return workers;
}

std::int64_t JobView::seconds() const {
  std::int64_t longest = 0;
  for (const NodeView& node : nodes) longest = std::max(longest, node.view ? node.view->seconds : 0);
  return longest;
}

std::int64_t JobView::seconds_in_round() const {
  std::int64_t longest = 0;
  for (const NodeView& node : nodes) {
    if (node.view && node.view->facts.round == facts.round) longest = std::max(longest, node.view->seconds_in_round);
  }
  return longest;
}

std::optional<std::int64_t> JobView::step() const {
  std::optional<std::int64_t> lowest;
  for (const NodeView& node : nodes) {
    if (node.facts.node_rank < 0) continue;
    const auto step = node.view ? node.view->step() : std::nullopt;
    if (!step) return std::nullopt;
    lowest = std::min(lowest.value_or(*step), *step);
  }
  return lowest;
}

std::optional<JobView::SlowRank> JobView::slow_rank() const {
  std::vector<std::pair<int, int>> shares;    // percent in collectives, rank
  std::vector<std::pair<double, int>> rates;  // steps in a second, rank
  for (const NodeView& node : nodes) {
    if (!node.view) continue;
    for (const WorkerView& worker : node.view->workers) {
      if (worker.in_collectives_percent) shares.emplace_back(*worker.in_collectives_percent, worker.rank);
      if (worker.steps_per_second) rates.emplace_back(*worker.steps_per_second, worker.rank);
    }
  }
  std::sort(shares.begin(), shares.end());
  std::sort(rates.begin(), rates.end());
  if (shares.size() > 1 && shares[1].first - shares[0].first >= kStandsOut) {
    const int percent = shares[1].first - shares[0].first;
    return SlowRank{shares[0].second, "the others wait for it " + std::to_string(percent) + " % of the time"};
  }
  if (rates.size() < 2 || rates[0].first * 100 > rates[1].first * (100 - kStandsOut)) return std::nullopt;
  const auto percent = static_cast<int>(100 * rates[0].first / rates[1].first);
  return SlowRank{rates[0].second, "it does " + std::to_string(percent) + " % of the steps of the next slowest"};
}

std::map<std::size_t, std::string> JobView::slow_links() const {
  std::vector<NodeLink> links;
  for (const NodeView& node : nodes) {
    links.push_back({node.facts.host, node.view ? node.view->link : std::nullopt});
  }
  std::map<std::size_t, std::string> slow;
  for (const std::size_t node : launcher::slow_links(links)) slow[node] = describe_slow_link(links, node);
  return slow;
}

JobView assemble(JobFacts facts, const std::map<std::string, std::string>& answers, const std::string& own_incarnation,
                 const AgentView& own, const std::string& error) {
  JobView state{.job = own.job, .program = own.program, .facts = {}, .nodes = {}, .error = error};
  const bool is_alone = facts.nodes.empty();  // the coordinator has said nothing
  if (is_alone) {
    facts.phase = own.facts.phase == rendezvous::NodePhase::Running ? "running" : "gathering";
    facts.round = own.facts.round;
    facts.restarts = own.facts.restart_count;
    facts.nodes.push_back({own_incarnation, own.host, "", own.phase.empty() ? facts.phase : own.phase,
                           own.facts.node_rank, own.facts.base_rank, own.facts.local_world_size});
  }
  for (JobFacts::Node& known : facts.nodes) {
    NodeView node{.facts = std::move(known)};
    node.is_coordinator = node.facts.incarnation == facts.coordinator;
    node.is_asked = node.facts.incarnation == own_incarnation;
    const auto answer = answers.find(node.facts.incarnation);
    if (answer != answers.end()) node.view = agent_view(answer->second);
    if (node.is_asked) node.view = own;
    if (!node.view) node.error = answer == answers.end() ? kNodeSilent : "its answer is no state of an agent";
    state.nodes.push_back(std::move(node));
  }
  facts.nodes.clear();
  state.facts = std::move(facts);
  for (auto& [node, why] : state.slow_links()) state.nodes[node].slow_link = why;
  return state;
}

std::string to_json(const JobView& state) { return rendezvous::json_of(state); }
std::optional<JobView> job_view(std::string_view json) { return rendezvous::read_json<JobView>(json); }

}  // namespace ddp::launcher
