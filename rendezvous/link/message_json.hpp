// SPDX-License-Identifier: BSD-3-Clause
// The messages of the agent link as JSON, for the link itself and for the coordinator's record, which has some of them.
// Members that AgentState and Directive leave out where they are zero are added by codec.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

using nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(WorkersPhase, {{WorkersPhase::Idle, "idle"},
                                            {WorkersPhase::Running, "running"},
                                            {WorkersPhase::Stopping, "stopping"},
                                            {WorkersPhase::Quiet, "quiet"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Directive::Kind, {{Directive::Kind::Wait, "wait"},
                                               {Directive::Kind::Run, "run"},
                                               {Directive::Kind::Stop, "stop"},
                                               {Directive::Kind::Exit, "exit"}})
// A number that a later release may have added is read as none.
inline void to_json(json& j, Why why) { j = static_cast<int>(why); }
inline void from_json(const json& j, Why& why) {
  const auto number = j.get<std::int64_t>();
  why = number >= 0 && number <= static_cast<int>(kLastWhy) ? static_cast<Why>(number) : Why::None;
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ExitStatus, code, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Assignment, node_rank, node_count, base_rank, world_size, base_role_rank,
                                   role_world_size, restart_count, max_restarts, master_addr, master_port)

// Found by the macros below through argument-dependent lookup.
inline void to_json(json& j, const WorkerFailure& f) {
  j = {{"rank", f.rank},
       {"local_rank", f.local_rank},
       {"host", f.host},
       {"pid", f.pid},
       {"status", f.status},
       {"time_ms", f.time.time_since_epoch().count()},
       {"already_exiting", f.already_exiting},
       {"stopped_by_ddprun", f.stopped_by_ddprun},
       {"message", f.message},
       {"stderr_tail", f.stderr_tail},
       {"stderr_log", f.stderr_log},
       {"flight_recorder", f.flight_recorder},
       {"out_of_memory", f.out_of_memory},
       {"hint", f.hint},
       {"error_record", f.error_record}};
  if (f.never_ran) j["never_ran"] = true;
}
inline void from_json(const json& j, WorkerFailure& f) {
  j.at("rank").get_to(f.rank);
  j.at("local_rank").get_to(f.local_rank);
  j.at("host").get_to(f.host);
  j.at("pid").get_to(f.pid);
  j.at("status").get_to(f.status);
  f.time = WallTime(std::chrono::milliseconds(j.at("time_ms").get<std::int64_t>()));
  j.at("already_exiting").get_to(f.already_exiting);
  j.at("stopped_by_ddprun").get_to(f.stopped_by_ddprun);
  j.at("message").get_to(f.message);
  j.at("stderr_tail").get_to(f.stderr_tail);
  j.at("stderr_log").get_to(f.stderr_log);
  j.at("flight_recorder").get_to(f.flight_recorder);
  j.at("out_of_memory").get_to(f.out_of_memory);
  j.at("hint").get_to(f.hint);
  j.at("error_record").get_to(f.error_record);
  f.never_ran = j.value("never_ran", false);
}

// Members that are left out where they are false, so that older releases' messages are read as well.
inline void to_json(json& j, const JobShape& job) {
  j = {{"id", job.id},
       {"min_nodes", job.min_nodes},
       {"max_nodes", job.max_nodes},
       {"max_restarts", job.max_restarts},
       {"node_ranks_given", job.node_ranks_given}};
  if (job.survivors_stay) j["survivors_stay"] = true;
  if (job.exclude_after > 0) j["exclude_after"] = job.exclude_after;
  if (job.restart_window.count() > 0) j["restart_window_ms"] = job.restart_window.count();
}
inline void from_json(const json& j, JobShape& job) {
  j.at("id").get_to(job.id);
  j.at("min_nodes").get_to(job.min_nodes);
  j.at("max_nodes").get_to(job.max_nodes);
  j.at("max_restarts").get_to(job.max_restarts);
  j.at("node_ranks_given").get_to(job.node_ranks_given);
  job.survivors_stay = j.value("survivors_stay", false);
  job.exclude_after = j.value("exclude_after", 0);
  job.restart_window = std::chrono::milliseconds(j.value("restart_window_ms", std::int64_t{0}));
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentState, job, epoch, incarnation, host, addresses, endpoint_host,
                                   coordinator_address, node_rank, role, slots, round, phase, succeeded, failures,
                                   stopped_because, stop_signal, unkillable, left)

inline void to_json(json& j, const Directive& d) {
  j = {{"kind", d.kind},           {"epoch", d.epoch},           {"lost_after_ms", d.lost_after.count()},
       {"round", d.round},         {"assignment", d.assignment}, {"stop_signal", d.stop_signal},
       {"exit_code", d.exit_code}, {"reason", d.reason},         {"failures", d.failures}};
  if (d.why != Why::None) j["why"] = d.why;
  if (d.cause) j["cause"] = *d.cause;
  if (d.survivors_stay) j["survivors_stay"] = true;
  if (d.restarts_left) j["restarts_left"] = *d.restarts_left;
  if (!d.instance.empty()) j["instance"] = d.instance;
  if (d.back_within != kReconnectWindow) j["back_within_ms"] = d.back_within.count();
}
inline void from_json(const json& j, Directive& d) {
  j.at("kind").get_to(d.kind);
  j.at("epoch").get_to(d.epoch);
  d.lost_after = std::chrono::milliseconds(j.at("lost_after_ms").get<std::int64_t>());
  j.at("round").get_to(d.round);
  j.at("assignment").get_to(d.assignment);
  j.at("stop_signal").get_to(d.stop_signal);
  j.at("exit_code").get_to(d.exit_code);
  j.at("reason").get_to(d.reason);
  j.at("failures").get_to(d.failures);
  d.why = j.value("why", Why::None);
  if (j.contains("cause")) d.cause = j.at("cause").get<WorkerFailure>();
  d.survivors_stay = j.value("survivors_stay", false);
  if (j.contains("restarts_left")) d.restarts_left = j.at("restarts_left").get<int>();
  d.instance = j.value("instance", std::string());
  d.back_within = std::chrono::milliseconds(j.value("back_within_ms", std::int64_t{kReconnectWindow.count()}));
}

}  // namespace ddp::rendezvous
