// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/job_record.hpp"

#include <stdexcept>
#include <utility>

#include "rendezvous/link/message_json.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::rendezvous {

constexpr int kRecordVersion = 1;

template <typename Json>
static void members(Json& json, JobRecord::Stop& s) {
  json.must("trigger", s.trigger).must("reason", s.reason).must("exit_code", s.exit_code).must("at_once", s.at_once);
  json.must("signal", s.signal).must("dead", s.dead).rest("cause", s.cause);
  member_why(json, s.why);
}
template <typename Json>
static void members(Json& json, JobRecord::Before& b) {
  json.must("instance", b.instance).must("exit", b.exit);
}
template <typename Json>
static void members(Json& json, JobRecord::Failure& f) {
  json.must("node", f.node).must("name", f.name).must("seen_ms", f.seen).must("failure", f.failure);
}
template <typename Json>
static void members(Json& json, JobRecord::Loss& l) {
  json.must("noticed_ms", l.noticed).must("text", l.text).must("stopped_itself", l.stopped_itself);
  json.must("hang", l.hang).must("name", l.name);
  member_why(json, l.why);
}
template <typename Json>
static void members(Json& json, JobRecord::Member& m) {
  json.must("incarnation", m.incarnation).must("host", m.host).must("address", m.address);
  json.must("arrived_at", m.arrived_at).must("endpoint_host", m.endpoint_host);
  json.must("coordinator_address", m.coordinator_address).must("role", m.role).must("addresses", m.addresses);
  json.must("node_rank", m.node_rank).must("wanted_rank", m.wanted_rank).must("slots", m.slots);
  json.must("base_rank", m.base_rank).must("base_role_rank", m.base_role_rank);
  json.must("role_world_size", m.role_world_size).must("can_look", m.can_look).must("leaving", m.leaving);
  json.must("heard_ms", m.heard);
}
template <typename Json>
static void members(Json& json, JobRecord& r) {
  int version = kRecordVersion;
  json.must("version", version);
  if (version != kRecordVersion) {
    throw std::range_error("version " + std::to_string(version) + ", this ddprun reads " +
                           std::to_string(kRecordVersion));
  }
  json.rest("instance", r.instance).rest("node", r.node).rest("host", r.host).must("phase", r.phase);
  json.must("round", r.round).must("restarts", r.restarts).rest("cause", r.cause).must("is_restart", r.is_restart);
  json.must("why_round", r.why_round).must("who_makes_room", r.who_makes_room);
  json.rest("gathers_since_ms", r.gathers_since).must("gathers_for_ms", r.gathers_for).rest("run", r.run);
  json.rest("exit", r.exit).must("own", r.own).must("stop", r.stop).must("failures", r.failures);
  json.must("losses", r.losses).must("spent_ms", r.spent).must("first_causes", r.first_causes);
  json.rest("before", r.before).must("members", r.members);
  member_why(json, r.why);
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

std::string encode(const JobRecord& record) { return json_of(record); }

std::variant<JobRecord, std::string> decode_record(std::string_view text) {
  constexpr std::size_t kMaxWhyBytes = 200;
  auto read = read_checked<JobRecord>(text);
  if (const auto* wrong = std::get_if<Malformed>(&read)) return cut_line(printable_line(wrong->why), kMaxWhyBytes);
  return std::move(std::get<JobRecord>(read));
}

}  // namespace ddp::rendezvous
