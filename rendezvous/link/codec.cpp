// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/codec.hpp"

#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/message_json.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::rendezvous {

template <typename Json>
static void members(Json& json, LookRequest& request) {
  json.must("number", request.number).must("what", request.what).rest("text", request.text);
}
template <typename Json>
static void members(Json& json, LookAnswer& answer) {
  json.must("number", answer.number).must("node", answer.node).must("text", answer.text);
}
template <typename Json>
static void members(Json& json, JobFacts::Node& node) {
  json.must("incarnation", node.incarnation).must("host", node.host).must("address", node.address);
  json.must("state", node.state).must("node_rank", node.node_rank).must("base_rank", node.base_rank);
  json.must("slots", node.slots);
}
template <typename Json>
static void members(Json& json, JobFacts& facts) {
  json.must("phase", facts.phase).must("round", facts.round).must("restarts", facts.restarts);
  json.must("max_restarts", facts.max_restarts).must("min_nodes", facts.min_nodes).must("max_nodes", facts.max_nodes);
  json.must("coordinator", facts.coordinator).must("nodes", facts.nodes);
}
template <typename Json>
static void members(Json& json, LookEnd& end) {
  json.must("number", end.number).must("error", end.error).must("facts", end.facts);
}
template <typename Json>
static void members(Json& json, ClockReading& reading) {
  json.must("agent_ns", reading.agent_ns).must("coordinator_ns", reading.coordinator_ns);
}

namespace {

constexpr std::size_t kMaxPayload = kMaxFrameBytes - kFrameHead;
constexpr FrameLimit kLinkFrames[] = {{FrameKind::Beat, 0},
                                      {FrameKind::AgentState, kMaxPayload},
                                      {FrameKind::Directive, kMaxPayload},
                                      {FrameKind::LookRequest, kMaxPayload},
                                      {FrameKind::LookAnswer, kMaxPayload},
                                      {FrameKind::LookEnd, kMaxPayload},
                                      {FrameKind::ClockReading, kMaxPayload}};

}  // namespace

std::string encode(const AgentState& state) { return to_frame(state); }
std::string encode(const Directive& directive) { return to_frame(directive); }
std::string encode(const LookRequest& request) { return to_frame(request); }
std::string encode(const LookAnswer& answer) { return to_frame(answer); }
std::string encode(const LookEnd& end) { return to_frame(end); }
std::string encode(const ClockReading& reading) { return to_frame(reading); }
std::string encode(const Heartbeat&) { return to_frame(FrameKind::Beat, ""); }

FrameDecoder::FrameDecoder() : frames_(kLinkFrames) {}

DecodedFrame FrameDecoder::next() {
  const auto next = frames_.next();
  if (const auto* wrong = std::get_if<Malformed>(&next)) return *wrong;
  const auto* frame = std::get_if<Frame>(&next);
  if (frame == nullptr) return NeedMore{};
  if (frame->kind == FrameKind::Beat) return Heartbeat{};
  auto read = read_message<AgentState, Directive, LookRequest, LookAnswer, LookEnd, ClockReading>(*frame, kMaxDepth);
  return std::visit([](auto& message) -> DecodedFrame { return std::move(message); }, read);
}

}  // namespace ddp::rendezvous
