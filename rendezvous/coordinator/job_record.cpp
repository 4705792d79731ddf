// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/job_record.hpp"

#include <exception>
#include <nlohmann/json.hpp>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/link/message_json.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {

using nlohmann::json;

namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMaxWhyBytes = 200;

std::vector<std::int64_t> counts_of(const std::vector<JobRecord::Age>& ages) {
  std::vector<std::int64_t> counts;
  for (const auto age : ages) counts.push_back(age.count());
  return counts;
}

JobRecord::Age age_of(const json& j) { return JobRecord::Age(j.get<std::int64_t>()); }

json optional(const std::optional<WorkerFailure>& failure) { return failure ? json(*failure) : json(); }
json optional(const std::optional<Directive>& directive) { return directive ? json(*directive) : json(); }

template <typename Value>
void read(const json& j, std::optional<Value>& value) {
  if (!j.is_null()) value = j.get<Value>();
}

}  // namespace

static void to_json(json& j, const JobRecord::Stop& s) {
  j = {{"trigger", s.trigger}, {"reason", s.reason}, {"exit_code", s.exit_code},   {"at_once", s.at_once},
       {"signal", s.signal},   {"dead", s.dead},     {"cause", optional(s.cause)}, {"why", s.why}};
}
static void from_json(const json& j, JobRecord::Stop& s) {
  j.at("trigger").get_to(s.trigger);
  j.at("reason").get_to(s.reason);
  j.at("exit_code").get_to(s.exit_code);
  j.at("at_once").get_to(s.at_once);
  j.at("signal").get_to(s.signal);
  j.at("dead").get_to(s.dead);
  read(j.at("cause"), s.cause);
  s.why = j.value("why", Why::None);
}
static void to_json(json& j, const JobRecord::Before& b) { j = {{"instance", b.instance}, {"exit", b.exit}}; }
static void from_json(const json& j, JobRecord::Before& b) {
  j.at("instance").get_to(b.instance);
  j.at("exit").get_to(b.exit);
}
static void to_json(json& j, const JobRecord::Failure& f) {
  j = {{"node", f.node}, {"name", f.name}, {"seen_ms", f.seen.count()}, {"failure", f.failure}};
}
static void from_json(const json& j, JobRecord::Failure& f) {
  j.at("node").get_to(f.node);
  j.at("name").get_to(f.name);
  f.seen = age_of(j.at("seen_ms"));
  j.at("failure").get_to(f.failure);
}
static void to_json(json& j, const JobRecord::Loss& l) {
  j = {{"noticed_ms", l.noticed.count()},
       {"text", l.text},
       {"stopped_itself", l.stopped_itself},
       {"hang", l.hang},
       {"name", l.name},
       {"why", l.why}};
}
static void from_json(const json& j, JobRecord::Loss& l) {
  l.noticed = age_of(j.at("noticed_ms"));
  j.at("text").get_to(l.text);
  j.at("stopped_itself").get_to(l.stopped_itself);
  j.at("hang").get_to(l.hang);
  j.at("name").get_to(l.name);
  l.why = j.value("why", Why::None);
}
static void to_json(json& j, const JobRecord::Member& m) {
  j = {{"incarnation", m.incarnation},
       {"host", m.host},
       {"address", m.address},
       {"arrived_at", m.arrived_at},
       {"endpoint_host", m.endpoint_host},
       {"coordinator_address", m.coordinator_address},
       {"role", m.role},
       {"addresses", m.addresses},
       {"node_rank", m.node_rank},
       {"wanted_rank", m.wanted_rank},
       {"slots", m.slots},
       {"base_rank", m.base_rank},
       {"base_role_rank", m.base_role_rank},
       {"role_world_size", m.role_world_size},
       {"can_look", m.can_look},
       {"leaving", m.leaving},
       {"heard_ms", m.heard.count()}};
}
static void from_json(const json& j, JobRecord::Member& m) {
  j.at("incarnation").get_to(m.incarnation);
  j.at("host").get_to(m.host);
  j.at("address").get_to(m.address);
  j.at("arrived_at").get_to(m.arrived_at);
  j.at("endpoint_host").get_to(m.endpoint_host);
  j.at("coordinator_address").get_to(m.coordinator_address);
  j.at("role").get_to(m.role);
  j.at("addresses").get_to(m.addresses);
  j.at("node_rank").get_to(m.node_rank);
  j.at("wanted_rank").get_to(m.wanted_rank);
  j.at("slots").get_to(m.slots);
  j.at("base_rank").get_to(m.base_rank);
  j.at("base_role_rank").get_to(m.base_role_rank);
  j.at("role_world_size").get_to(m.role_world_size);
  j.at("can_look").get_to(m.can_look);
  j.at("leaving").get_to(m.leaving);
  m.heard = age_of(j.at("heard_ms"));
}

AgentState state_of(const JobRecord::Member& member) {
  return {.incarnation = member.incarnation,
          .host = member.host,
          .addresses = member.addresses,
          .endpoint_host = member.endpoint_host,
          .coordinator_address = member.coordinator_address,
          .node_rank = member.node_rank,
          .wanted_rank = member.wanted_rank,
          .role = member.role,
          .slots = member.slots,
          .can_look = member.can_look};
}

Directive run_for(const JobRecord::Member& member, std::size_t node_rank, Directive run) {
  run.assignment.node_rank = static_cast<int>(node_rank);
  run.assignment.base_rank = member.base_rank;
  run.assignment.base_role_rank = member.base_role_rank;
  run.assignment.role_world_size = member.role_world_size;
  return run;
}

std::string encode(const JobRecord& r) {
  json j = {{"version", kVersion},
            {"phase", r.phase},
            {"round", r.round},
            {"restarts", r.restarts},
            {"cause", optional(r.cause)},
            {"is_restart", r.is_restart},
            {"why", r.why},
            {"why_round", r.why_round},
            {"who_makes_room", r.who_makes_room},
            {"gathers_for_ms", r.gathers_for.count()},
            {"run", optional(r.run)},
            {"exit", optional(r.exit)},
            {"own", r.own},
            {"stop", r.stop},
            {"failures", r.failures},
            {"losses", r.losses},
            {"spent_ms", counts_of(r.spent)},
            {"first_causes", r.first_causes},
            {"members", r.members}};
  if (r.gathers_since) j["gathers_since_ms"] = r.gathers_since->count();
  if (!r.instance.empty()) j["instance"] = r.instance;
  if (!r.node.empty()) j["node"] = r.node;
  if (!r.host.empty()) j["host"] = r.host;
  if (r.before) j["before"] = *r.before;
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::variant<JobRecord, std::string> decode_record(std::string_view text) {
  try {
    const json j = parse_shallow(text);
    if (!j.is_object()) return std::string("no JSON object, or nested deeper than any record");
    const int version = j.at("version").get<int>();
    if (version != kVersion) {
      return "version " + std::to_string(version) + ", this ddprun reads " + std::to_string(kVersion);
    }
    JobRecord r;
    j.at("phase").get_to(r.phase);
    j.at("round").get_to(r.round);
    j.at("restarts").get_to(r.restarts);
    read(j.at("cause"), r.cause);
    j.at("is_restart").get_to(r.is_restart);
    r.why = j.value("why", Why::None);
    j.at("why_round").get_to(r.why_round);
    j.at("who_makes_room").get_to(r.who_makes_room);
    if (j.contains("gathers_since_ms")) r.gathers_since = age_of(j.at("gathers_since_ms"));
    r.gathers_for = age_of(j.at("gathers_for_ms"));
    read(j.at("run"), r.run);
    read(j.at("exit"), r.exit);
    j.at("own").get_to(r.own);
    j.at("stop").get_to(r.stop);
    j.at("failures").get_to(r.failures);
    j.at("losses").get_to(r.losses);
    for (const json& age : j.at("spent_ms")) r.spent.push_back(age_of(age));
    j.at("first_causes").get_to(r.first_causes);
    r.instance = j.value("instance", "");
    r.node = j.value("node", "");
    r.host = j.value("host", "");
    if (j.contains("before")) r.before = j.at("before").get<JobRecord::Before>();
    j.at("members").get_to(r.members);
    if (const auto why = accept(r)) return cut_line(*why, kMaxWhyBytes);
    return r;
  } catch (const std::exception& error) {
    return cut_line(printable_line(error.what()), kMaxWhyBytes);
  }
}

}  // namespace ddp::rendezvous
