// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/codec.hpp"
#include "rendezvous/base/length_bytes.hpp"

#include <nlohmann/json.hpp>

#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/printable.hpp"

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
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ExitStatus, code, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Assignment, node_rank, node_count, base_rank, world_size, base_role_rank,
                                   role_world_size, restart_count, max_restarts, master_addr, master_port)

// Found by the macros below through argument-dependent lookup.
static void to_json(json& j, const WorkerFailure& f) {
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
static void from_json(const json& j, WorkerFailure& f) {
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
static void to_json(json& j, const JobShape& job) {
  j = {{"id", job.id},
       {"min_nodes", job.min_nodes},
       {"max_nodes", job.max_nodes},
       {"max_restarts", job.max_restarts},
       {"node_ranks_given", job.node_ranks_given}};
  if (job.survivors_stay) j["survivors_stay"] = true;
  if (job.exclude_after > 0) j["exclude_after"] = job.exclude_after;
  if (job.restart_window.count() > 0) j["restart_window_ms"] = job.restart_window.count();
}
static void from_json(const json& j, JobShape& job) {
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

static void to_json(json& j, const Directive& d) {
  j = {{"kind", d.kind},           {"epoch", d.epoch},           {"lost_after_ms", d.lost_after.count()},
       {"round", d.round},         {"assignment", d.assignment}, {"stop_signal", d.stop_signal},
       {"exit_code", d.exit_code}, {"reason", d.reason},         {"failures", d.failures}};
  if (d.cause) j["cause"] = *d.cause;
  if (d.survivors_stay) j["survivors_stay"] = true;
  if (d.restarts_left) j["restarts_left"] = *d.restarts_left;
}
static void from_json(const json& j, Directive& d) {
  j.at("kind").get_to(d.kind);
  j.at("epoch").get_to(d.epoch);
  d.lost_after = std::chrono::milliseconds(j.at("lost_after_ms").get<std::int64_t>());
  j.at("round").get_to(d.round);
  j.at("assignment").get_to(d.assignment);
  j.at("stop_signal").get_to(d.stop_signal);
  j.at("exit_code").get_to(d.exit_code);
  j.at("reason").get_to(d.reason);
  j.at("failures").get_to(d.failures);
  if (j.contains("cause")) d.cause = j.at("cause").get<WorkerFailure>();
  d.survivors_stay = j.value("survivors_stay", false);
  if (j.contains("restarts_left")) d.restarts_left = j.at("restarts_left").get<int>();
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LookRequest, number, what)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LookAnswer, number, node, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobFacts::Node, incarnation, host, address, state, node_rank, base_rank, slots)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobFacts, phase, round, restarts, max_restarts, min_nodes, max_nodes, coordinator,
                                   nodes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LookEnd, number, error, facts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockReading, agent_ns, coordinator_ns)

namespace {

constexpr char kAgentState[] = "agent_state";
constexpr char kDirective[] = "directive";
constexpr char kLookRequest[] = "look_request", kLookAnswer[] = "look_answer", kLookEnd[] = "look_end";
constexpr char kClockReading[] = "clock_reading";
constexpr std::size_t kMaxTypeBytes = 32, kMaxWhyBytes = 200;  // quoted at most in a log line

std::string frame(json message, const char* type) {
  message["type"] = type;
  // Workers write what they like to stderr; dump() would throw on bytes that are not UTF-8.
  const std::string body = message.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string bytes;
  bytes.reserve(kLengthBytes + body.size());
  append_length(bytes, body.size());
  return bytes + body;
}

json parse(std::string_view body) {
  return json::parse(body, [](int depth, json::parse_event_t, json& parsed) {
    if (depth > kMaxDepth) throw std::length_error("nested deeper than " + std::to_string(kMaxDepth));
    if (parsed.is_number_float()) throw std::out_of_range("a number that is not whole");  // no member is one
    return true;
  });
}

// Whether a word of an enumeration is known: an unknown one is read as the first.
bool is_known(const json& message, const AgentState& state) { return message.at("phase") == json(state.phase); }
bool is_known(const json& message, const Directive& directive) { return message.at("kind") == json(directive.kind); }
template <typename Look>
bool is_known(const json&, const Look&) {
  return true;
}

// Members that are left out where they are zero, so that older releases' messages are read as well.
void read_optional(const json& message, AgentState& state) {
  state.successors = message.value("successors", 0);
  state.wanted_rank = message.value("wanted_rank", -1);
  state.can_look = message.value("can_look", false);
  state.hang = static_cast<Hang>(message.value("hang", 0));
  state.is_ending = message.value("is_ending", false);
}
void read_optional(const json& message, LookRequest& request) { request.text = message.value("text", ""); }
void read_optional(const json& message, Directive& directive) { directive.can_look = message.value("can_look", false); }
template <typename Look>
void read_optional(const json&, Look&) {}

template <typename Message>
DecodedFrame accepted(const json& message) {
  auto read = message.get<Message>();
  read_optional(message, read);
  if (!is_known(message, read)) return MalformedFrame{"a word that is not known"};
  if (const auto why = accept(read)) return MalformedFrame{*why};
  return read;
}

DecodedFrame decode(std::string_view body) {
  try {
    const json message = parse(body);
    const auto type = message.at("type").get<std::string>();
    if (type == kAgentState) return accepted<AgentState>(message);
    if (type == kDirective) return accepted<Directive>(message);
    if (type == kLookRequest) return accepted<LookRequest>(message);
    if (type == kLookAnswer) return accepted<LookAnswer>(message);
    if (type == kLookEnd) return accepted<LookEnd>(message);
    if (type == kClockReading) return accepted<ClockReading>(message);
    return MalformedFrame{"a message of type '" + cut_line(printable_line(type), kMaxTypeBytes) + "'"};
  } catch (const std::exception& error) {
    return MalformedFrame{cut_line(printable_line(error.what()), kMaxWhyBytes)};  // it may quote the message
  }
}

}  // namespace

std::string encode(const AgentState& state) {
  json message = state;
  if (state.successors > 0) message["successors"] = state.successors;
  if (state.wanted_rank >= 0) message["wanted_rank"] = state.wanted_rank;
  if (state.can_look) message["can_look"] = true;
  if (state.hang != Hang::None) message["hang"] = static_cast<int>(state.hang);
  if (state.is_ending) message["is_ending"] = true;
  return frame(std::move(message), kAgentState);
}
std::string encode(const Directive& directive) {
  json message = directive;
  if (directive.can_look) message["can_look"] = true;
  return frame(std::move(message), kDirective);
}
std::string encode(const LookRequest& request) {
  json message = request;
  if (!request.text.empty()) message["text"] = request.text;
  return frame(std::move(message), kLookRequest);
}
std::string encode(const LookAnswer& answer) { return frame(answer, kLookAnswer); }
std::string encode(const LookEnd& end) { return frame(end, kLookEnd); }
std::string encode(const ClockReading& reading) { return frame(reading, kClockReading); }
std::string encode(const Heartbeat&) { return std::string(kLengthBytes, '\0'); }

DecodedFrame FrameDecoder::next() {
  if (buffer_.size() < kLengthBytes) return NeedMoreBytes{};
  const std::size_t length = length_at_begin(buffer_);
  if (length > kMaxFrameBytes) return MalformedFrame{"a frame of " + std::to_string(length) + " bytes"};
  if (buffer_.size() < kLengthBytes + length) return NeedMoreBytes{};
  DecodedFrame message = Heartbeat{};
  if (length > 0) message = decode(std::string_view(buffer_).substr(kLengthBytes, length));
  buffer_.erase(0, kLengthBytes + length);
  if (length > kKeptBytes) buffer_.shrink_to_fit();
  return message;
}

}  // namespace ddp::rendezvous
