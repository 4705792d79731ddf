// SPDX-License-Identifier: BSD-3-Clause
// The members of the agent link's messages, for the link itself and for the coordinator's record, which has some of the
// messages. Only .cpp files include this.
#pragma once

#include "rendezvous/link/messages.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::rendezvous {

template <typename Json>
void members(Json& json, ExitStatus& status) {
  json.must("code", status.code).must("signal", status.signal);
}

template <typename Json>
void members(Json& json, WorkerFailure& f) {
  json.must("rank", f.rank).must("local_rank", f.local_rank).must("host", f.host).must("pid", f.pid);
  json.must("status", f.status).must("time_ms", f.time).must("already_exiting", f.already_exiting);
  json.must("stopped_by_ddprun", f.stopped_by_ddprun).rest("never_ran", f.never_ran).must("message", f.message);
  json.must("stderr_tail", f.stderr_tail).must("stderr_log", f.stderr_log).must("flight_recorder", f.flight_recorder);
  json.must("out_of_memory", f.out_of_memory).must("hint", f.hint).must("error_record", f.error_record);
}

template <typename Json>
void members(Json& json, JobShape& job) {
  json.must("id", job.id).must("min_nodes", job.min_nodes).must("max_nodes", job.max_nodes);
  json.must("max_restarts", job.max_restarts).must("node_ranks_given", job.node_ranks_given);
  json.rest("survivors_stay", job.survivors_stay).rest("exclude_after", job.exclude_after);
  json.rest("restart_window_ms", job.restart_window);
}

template <typename Json>
void members(Json& json, AgentState& s) {
  json.must("job", s.job).must("epoch", s.epoch).rest("instance", s.instance).must("incarnation", s.incarnation);
  json.must("host", s.host).must("addresses", s.addresses).must("endpoint_host", s.endpoint_host);
  json.must("coordinator_address", s.coordinator_address).must("node_rank", s.node_rank);
  json.rest("wanted_rank", s.wanted_rank, -1).must("role", s.role).must("slots", s.slots).must("round", s.round);
  json.word("phase", s.phase, {"idle", "running", "stopping", "quiet"}).must("succeeded", s.succeeded);
  json.must("failures", s.failures).must("stopped_because", s.stopped_because);
  json.word("hang", s.hang, {"none", "restart", "end"}).must("stop_signal", s.stop_signal);
  json.must("unkillable", s.unkillable).rest("is_ending", s.is_ending).rest("can_look", s.can_look);
  json.must("left", s.left);
}

template <typename Json>
void members(Json& json, Assignment& place) {
  json.must("node_rank", place.node_rank).must("node_count", place.node_count).must("base_rank", place.base_rank);
  json.must("world_size", place.world_size).must("base_role_rank", place.base_role_rank);
  json.must("role_world_size", place.role_world_size).must("restart_count", place.restart_count);
  json.must("max_restarts", place.max_restarts).must("master_addr", place.master_addr);
  json.must("master_port", place.master_port);
}

// A number that a later release may have added is read as none.
template <typename Json>
void member_why(Json& json, Why& why) {
  int number = static_cast<int>(why);
  json.rest("why", number);
  if constexpr (Json::kReads) why = number >= 0 && number <= static_cast<int>(kLastWhy) ? Why(number) : Why::None;
}

template <typename Json>
void members(Json& json, Directive& d) {
  json.word("kind", d.kind, {"wait", "run", "stop", "exit"}).must("epoch", d.epoch).rest("instance", d.instance);
  json.must("lost_after_ms", d.lost_after).rest("back_within_ms", d.back_within, kReconnectWindow);
  json.must("round", d.round).must("assignment", d.assignment).must("stop_signal", d.stop_signal);
  json.rest("survivors_stay", d.survivors_stay).must("exit_code", d.exit_code).must("reason", d.reason);
  json.rest("cause", d.cause).must("failures", d.failures).rest("can_look", d.can_look);
  json.rest("restarts_left", d.restarts_left);
  member_why(json, d.why);
}

}  // namespace ddp::rendezvous
