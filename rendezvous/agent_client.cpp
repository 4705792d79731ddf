// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/agent_client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "rendezvous/base/error.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::rendezvous {

template <typename Json>
static void members(Json& json, AgentRequest& request) {
  json.must("ask", request.ask).rest("incarnation", request.incarnation).rest("layout", request.layout);
  json.rest("name", request.name).rest("bytes", request.bytes).rest("stays", request.stays);
  json.rest("round", request.round).rest("others", request.others).rest("sockets", request.sockets);
}

template <typename Json>
static void members(Json& json, AgentAnswer& answer) {
  json.rest("error", answer.error).rest("local_rank", answer.local_rank, -1);
  json.word("go_on", answer.go_on, {"nowhere", "after_step", "within_step"}).rest("step", answer.step, kNoStep);
  json.rest("parts", answer.parts).rest("stays", answer.stays).rest("lost_after_ms", answer.lost_after);
  json.rest("ends_them", answer.ends_them);
}

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void ask_failed(ErrorCode code, const std::string& path, const std::string& why) {
  throw Error(code, "agent at " + path + ": " + why);
}

[[noreturn]] void closed(const std::string& path) {
  ask_failed(ErrorCode::PeerLost, path, "it closed the connection (is it another user's?)");
}

// Waits until the agent has answered or closed the connection.
bool wait_for_answer(int socket, Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited = {.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&waited, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

constexpr std::size_t kMostInMessage = 4 << 20;
constexpr FrameLimit kRequestFrames[] = {{FrameKind::AgentRequest, kMostInMessage}};
constexpr FrameLimit kAnswerFrames[] = {{FrameKind::AgentAnswer, kMostInMessage},
                                        {FrameKind::AgentView, kMostInMessage}};

}  // namespace

DescriptorMessage ask_agent(const std::string& path, const std::string& request) {
  const auto until = Clock::now() + kAnswerWithin;
  const Descriptor socket = send_to_agent(path, request, kAnswerWithin);
  if (!wait_for_answer(socket.get(), until)) throw_no_answer(path);
  return receive_answer(socket.get(), path);
}

Descriptor send_to_agent(const std::string& path, const std::string& request, std::chrono::milliseconds for_its_place) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (!socket || path.size() >= sizeof address.sun_path) ask_failed(ErrorCode::System, path, "no socket for this path");
  path.copy(address.sun_path, path.size());
  // connect() waits while the queue of a stopped agent is full.
  const timeval limit = {.tv_sec = for_its_place.count() / 1000, .tv_usec = for_its_place.count() % 1000 * 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EAGAIN) throw_no_answer(path);
    const bool is_gone = errno == ECONNREFUSED || errno == ENOENT;
    ask_failed(is_gone ? ErrorCode::PeerLost : ErrorCode::System, path,
               is_gone ? "it is gone" : std::string("cannot connect: ") + strerror(errno));
  }
  if (!send_with_descriptors(socket.get(), request, {})) closed(path);
  return socket;
}

DescriptorMessage receive_answer(int connection, const std::string& path) {
  auto answer = receive_with_descriptors(connection);
  if (!answer || answer->text.empty()) closed(path);
  return std::move(*answer);
}

void throw_no_answer(const std::string& path) {
  ask_failed(ErrorCode::Timeout, path, "no answer in 5 s (is the agent stopped?)");
}

std::string encode(const AgentRequest& request) { return to_frame(request); }
std::string encode(const AgentAnswer& answer) { return to_frame(answer); }

std::variant<Malformed, AgentRequest> decode_request(const std::string& text) {
  return read_single<AgentRequest>(text, kRequestFrames);
}

AgentReply ask_agent(const std::string& path, const AgentRequest& request) {
  DescriptorMessage message = ask_agent(path, encode(request));
  auto read = read_single<AgentAnswer>(message.text, kAnswerFrames);
  const auto* wrong = std::get_if<Malformed>(&read);
  if (wrong != nullptr) ask_failed(ErrorCode::Corrupt, path, "it answers with " + wrong->why);
  return {std::move(std::get<AgentAnswer>(read)), std::move(message.descriptors)};
}

std::string payload_of(const std::string& answer) {
  FrameReader reader(kAnswerFrames);
  reader.add(answer);
  const auto next = reader.next();
  if (const auto* frame = std::get_if<Frame>(&next)) return std::string(frame->payload);
  const auto* wrong = std::get_if<Malformed>(&next);
  return wrong != nullptr ? wrong->why : "a frame that is cut off";
}

}  // namespace ddp::rendezvous
