// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/job_state.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/local/job_answers.hpp"
#include "launcher/text/json_text.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/shallow_json.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::JobFacts;

// Empty words are null.
void add_words(JsonObject& json, const char* name, const std::string& words) {
  if (words.empty()) {
    json.json(name, "null");
  } else {
    json.text(name, words);
  }
}

std::string error_in(const nlohmann::json& object) {
  const auto& error = object.at("error");
  return error.is_null() ? "" : error.get<std::string>();
}

constexpr int kStandsOut = 20;  // percent: less is noise

const char* word(bool value) { return value ? "true" : "false"; }

// `slow_link` is empty if the node is not slow.
std::string node_json(const NodeState& node, const std::string& slow_link) {
  const JobFacts::Node& facts = node.facts;
  JsonObject json;
  json.text("host", facts.host).text("address", facts.address).number("node_rank", facts.node_rank);
  json.number("base_rank", facts.base_rank).text("state", facts.state).json("seated", word(facts.node_rank >= 0));
  json.json("coordinator", word(node.is_coordinator)).json("asked", word(node.is_asked));
  json.text("incarnation", facts.incarnation).number("slots", facts.slots);
  add_words(json, "slow_link", slow_link);
  add_words(json, "error", node.error);
  if (!node.view) return json.json("workers", "[]").str();
  add_node_members(json, *node.view);
  return json.str();
}

NodeState node_in(const nlohmann::json& object) {
  NodeState node;
  node.facts.host = object.at("host");
  node.facts.address = object.at("address");
  node.facts.node_rank = object.at("node_rank");
  node.facts.base_rank = object.at("base_rank");
  node.facts.state = object.at("state");
  node.facts.incarnation = object.at("incarnation");
  node.facts.slots = object.at("slots");
  node.is_coordinator = object.at("coordinator");
  node.is_asked = object.at("asked");
  node.error = error_in(object);
  if (object.contains("pid")) node.view = agent_view(object.dump());
  return node;
}

}  // namespace

int JobState::world_size() const {
  int workers = 0;
  for (const NodeState& node : nodes) workers += node.facts.node_rank >= 0 ? node.facts.slots : 0;
  return workers;
}

std::int64_t JobState::seconds() const {
  std::int64_t longest = 0;
  for (const NodeState& node : nodes) longest = std::max(longest, node.view ? node.view->seconds : 0);
  return longest;
}

std::int64_t JobState::seconds_in_round() const {
  std::int64_t longest = 0;
  for (const NodeState& node : nodes) {
    if (node.view && node.view->facts.round == facts.round) longest = std::max(longest, node.view->seconds_in_round);
  }
  return longest;
}

std::optional<std::int64_t> JobState::step() const {
  std::optional<std::int64_t> lowest;
  for (const NodeState& node : nodes) {
    if (node.facts.node_rank < 0) continue;
    if (!node.view || node.view->workers.empty()) return std::nullopt;
    for (const WorkerView& worker : node.view->workers) {
      if (!worker.step) return std::nullopt;
      lowest = std::min(lowest.value_or(*worker.step), *worker.step);
    }
  }
  return lowest;
}

std::optional<JobState::SlowRank> JobState::slow_rank() const {
  std::vector<std::pair<int, int>> shares;    // percent in collectives, rank
  std::vector<std::pair<double, int>> rates;  // steps in a second, rank
  for (const NodeState& node : nodes) {
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

std::map<std::size_t, std::string> JobState::slow_links() const {
  std::vector<NodeLink> links;
  for (const NodeState& node : nodes) {
    links.push_back({node.facts.host, node.view ? node.view->link : std::nullopt});
  }
  std::map<std::size_t, std::string> slow;
  for (const std::size_t node : launcher::slow_links(links)) slow[node] = describe_slow_link(links, node);
  return slow;
}

JobState assemble(JobFacts facts, const std::map<std::string, std::string>& answers, const std::string& own_incarnation,
                  const AgentView& own, const std::string& error) {
  JobState state{.job = own.job, .program = own.program, .facts = {}, .nodes = {}, .error = error};
  const bool is_alone = facts.nodes.empty();  // the coordinator has said nothing
  if (is_alone) {
    facts.phase = own.facts.phase == rendezvous::NodePhase::Running ? "running" : "gathering";
    facts.round = own.facts.round;
    facts.restarts = own.facts.restart_count;
    facts.nodes.push_back({own_incarnation, own.host, "", own.phase.empty() ? facts.phase : own.phase,
                           own.facts.node_rank, own.facts.base_rank, own.facts.local_world_size});
  }
  for (JobFacts::Node& known : facts.nodes) {
    NodeState node{.facts = std::move(known)};
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
  return state;
}

std::string to_json(const JobState& state) {
  std::string nodes;
  std::map<std::size_t, std::string> slow_links = state.slow_links();
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    nodes += (nodes.empty() ? "" : ", ") + node_json(state.nodes[i], slow_links[i]);
  }
  const JobFacts& facts = state.facts;
  JsonObject json;
  json.number("version", rendezvous::kAgentSocketVersion).text("job", state.job).text("program", state.program);
  json.text("phase", facts.phase).number("round", facts.round).number("restarts", facts.restarts);
  json.number("max_restarts", facts.max_restarts).number("min_nodes", facts.min_nodes);
  json.number("max_nodes", facts.max_nodes).number("world_size", state.world_size());
  json.number("seconds", state.seconds()).number("seconds_in_round", state.seconds_in_round());
  json.number("step", state.step());
  const auto slow = state.slow_rank();
  json.number("slow_rank", slow ? std::optional<std::int64_t>(slow->rank) : std::nullopt);
  add_words(json, "slow_rank_why", slow ? slow->why : "");
  add_words(json, "error", state.error);
  return json.json("nodes", "[" + nodes + "]").str();
}

std::optional<JobState> job_state(std::string_view json) {
  try {
    const auto object = rendezvous::parse_shallow(json);
    JobState state;
    state.job = object.at("job");
    state.program = object.at("program");
    state.facts.phase = object.at("phase");
    state.facts.round = object.at("round");
    state.facts.restarts = object.at("restarts");
    state.facts.max_restarts = object.at("max_restarts");
    state.facts.min_nodes = object.at("min_nodes");
    state.facts.max_nodes = object.at("max_nodes");
    state.error = error_in(object);
    for (const auto& node : object.at("nodes")) state.nodes.push_back(node_in(node));
    return state;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launcher
