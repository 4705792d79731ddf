// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/link.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::collectives {
namespace {

using rendezvous::Descriptor;

// A host that vanishes is found after some 30 s, also while nobody sends.
constexpr int kSilentSeconds = 15, kProbeSeconds = 5, kProbes = 3;

void set_options(int socket) {
  const auto set = [&](int level, int name, int value) { setsockopt(socket, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// Compares in a time that does not depend on where the two differ.
template <std::size_t N>
bool equal(const std::array<char, N>& a, const std::array<char, N>& b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < N; ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace

LinkSecrets::LinkSecrets(const std::string& text) : of_who_connects{}, of_who_accepts{} {
  text.copy(of_who_connects.data(), kBytes);
  if (text.size() > kBytes) text.copy(of_who_accepts.data(), kBytes, kBytes);
}

Link::Link(const Endpoint& endpoint, const Hello& hello, const LinkSecrets& secrets)
    : hello_(hello), expected_(secrets.of_who_accepts) {
  hello_.secret = secrets.of_who_connects;
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found) != 0) {
    break_off("\"" + endpoint.host + "\" is no numeric address");
    return;
  }
  socket_ = Descriptor(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  const bool begun =
      socket_ && (connect(socket_.get(), found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS);
  const int error = errno;
  freeaddrinfo(found);
  if (!begun) {
    break_off(std::strerror(error));
    return;
  }
  set_options(socket_.get());
  state_ = State::Connecting;
}

Link::Link(Descriptor accepted, const LinkSecrets& secrets) : socket_(std::move(accepted)), state_(State::Open) {
  set_options(socket_.get());
  iovec answer = {const_cast<char*>(secrets.of_who_accepts.data()), LinkSecrets::kBytes};
  if (write(&answer, 1) != LinkSecrets::kBytes) break_off("the connection took no answer");  // it is empty
}

bool Link::is_open() {
  if (state_ == State::Connecting) {
    pollfd event = {socket_.get(), POLLOUT, 0};
    if (poll(&event, 1, 0) == 0) return false;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      break_off(std::strerror(error));
      return false;
    }
    state_ = State::Greeting;
  }
  if (state_ == State::Greeting) {
    iovec rest = {reinterpret_cast<char*>(&hello_) + hello_sent_, sizeof hello_ - hello_sent_};
    if (rest.iov_len > 0) hello_sent_ += write(&rest, 1);
    iovec answer = {answer_.data() + answer_moved_, answer_.size() - answer_moved_};
    answer_moved_ += read(&answer, 1);
    if (answer_moved_ == answer_.size()) {
      if (equal(answer_, expected_)) {
        state_ = State::Open;
      } else {
        break_off("what listens there is no rank of this group");
      }
    }
  }
  return state_ == State::Open;
}

short Link::events_to_open() const {
  if (state_ == State::Open || state_ == State::Broken) return 0;
  return state_ == State::Connecting || hello_sent_ < sizeof hello_ ? POLLOUT : POLLIN;
}

std::size_t Link::write(const iovec* parts, std::size_t count) {
  if (state_ == State::Broken) return 0;
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (!would_block(errno)) break_off(std::strerror(errno));
  return 0;
}

std::size_t Link::read(const iovec* parts, std::size_t count) {
  if (state_ == State::Broken) return 0;
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) {
    break_off("the other side closed the connection");
  } else if (!would_block(errno)) {
    break_off(std::strerror(errno));
  }
  return 0;
}

bool Link::is_at_end() {
  if (state_ == State::Broken) return true;
  if (state_ != State::Open) return false;
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 0) break_off("the other side closed the connection");
  if (got < 0 && !would_block(errno)) break_off(std::strerror(errno));
  return state_ == State::Broken;
}

void Link::shut_down() const {
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
}

void Link::break_off(const std::string& why) {
  state_ = State::Broken;
  if (why_.empty()) why_ = why;
}

Stranger::Said Stranger::hear(const LinkSecrets& secrets) {
  const ssize_t got =
      recv(socket_.get(), reinterpret_cast<char*>(&hello_) + heard_, sizeof hello_ - heard_, MSG_DONTWAIT);
  if (got < 0 && would_block(errno)) return Said::NothingYet;
  if (got <= 0) return Said::SomethingElse;
  heard_ += static_cast<std::size_t>(got);
  const std::size_t greeted = std::min(heard_, hello_.greeting.size());
  if (std::memcmp(hello_.greeting.data(), Hello().greeting.data(), greeted) != 0) return Said::SomethingElse;
  if (heard_ < sizeof hello_) return Said::NothingYet;
  return equal(hello_.secret, secrets.of_who_connects) ? Said::Hello : Said::SomethingElse;
}

}  // namespace ddp::collectives
