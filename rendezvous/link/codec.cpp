// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/codec.hpp"
#include "rendezvous/base/length_bytes.hpp"

#include <nlohmann/json.hpp>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/message_json.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {

using nlohmann::json;

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
  json message = parse_shallow(body, kMaxDepth, [](int, json::parse_event_t, json& parsed) {
    if (parsed.is_number_float()) throw std::out_of_range("a number that is not whole");  // no member is one
    return true;
  });
  if (message.is_discarded()) throw std::invalid_argument("no JSON, or nested deeper than any message");
  return message;
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
  state.wanted_rank = message.value("wanted_rank", -1);
  state.can_look = message.value("can_look", false);
  state.hang = static_cast<Hang>(message.value("hang", 0));
  state.is_ending = message.value("is_ending", false);
  state.instance = message.value("instance", "");
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
  if (state.wanted_rank >= 0) message["wanted_rank"] = state.wanted_rank;
  if (state.can_look) message["can_look"] = true;
  if (state.hang != Hang::None) message["hang"] = static_cast<int>(state.hang);
  if (state.is_ending) message["is_ending"] = true;
  if (!state.instance.empty()) message["instance"] = state.instance;
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
