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
#include "rendezvous/base/shallow_json.hpp"

namespace ddp::rendezvous {
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

// Returns a member of an answer; null if there is none.
nlohmann::json member(const std::string& answer, const std::string& name) {
  const nlohmann::json object = parse_shallow(answer);
  return object.contains(name) ? object.at(name) : nlohmann::json();
}

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

std::optional<std::int64_t> number_in(const std::string& answer, const std::string& name) {
  const nlohmann::json value = member(answer, name);
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

std::optional<std::string> text_in(const std::string& answer, const std::string& name) {
  const nlohmann::json value = member(answer, name);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

}  // namespace ddp::rendezvous
