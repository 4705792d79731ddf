// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/coordination/farewell.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <variant>

#include "launcher/coordination/membership.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;

constexpr std::chrono::seconds kGiveUpAfter(1);
constexpr std::size_t kMaxStateBytes = 60 << 10;

// A connection whose every call ends at one deadline.
class Connection {
 public:
  Connection(const char* address, std::uint16_t port) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (getaddrinfo(address, std::to_string(port).c_str(), &hints, &found) != 0) return;
    socket_ = Descriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int begun = connect(socket_.get(), found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (begun != 0 && (errno != EINPROGRESS || !wait(POLLOUT))) socket_.close();
  }

  bool write(std::string_view bytes) {
    while (!bytes.empty() && wait(POLLOUT)) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return bytes.empty();
  }

  // Returns what has arrived, at least one byte; nothing: the other side has closed, or the time is over.
  std::optional<std::string> read() {
    char bytes[4096];
    const ssize_t size = wait(POLLIN) ? recv(socket_.get(), bytes, sizeof bytes, 0) : 0;
    if (size <= 0) return std::nullopt;
    return std::string(bytes, static_cast<std::size_t>(size));
  }

 private:
  bool wait(short event) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up_ - Clock::now()).count();
    pollfd ready = {socket_.get(), event, 0};
    return socket_ && left > 0 && poll(&ready, 1, static_cast<int>(left)) == 1;
  }

  const Clock::time_point give_up_ = Clock::now() + kGiveUpAfter;
  Descriptor socket_;
};

// Returns nothing if the other side is not this job's coordinator, or does not answer in time.
std::optional<rendezvous::LinkCipher> shake_hands(Connection& connection, const std::string& where,
                                                  const LaunchConfig& config) {
  rendezvous::AgentHandshake handshake(where, find_membership(config).membership);
  if (!connection.write(handshake.preface())) return std::nullopt;
  while (const auto bytes = connection.read()) {
    std::string answer;
    const rendezvous::HandshakeVerdict verdict = handshake.feed(*bytes, answer);
    if (std::holds_alternative<rendezvous::HandshakeFailed>(verdict) || !connection.write(answer)) return std::nullopt;
    if (const auto* done = std::get_if<rendezvous::HandshakeDone>(&verdict)) {
      return rendezvous::LinkCipher(rendezvous::LinkRole::Agent, done->keys);
    }
  }
  return std::nullopt;
}

}  // namespace

struct Farewell::Page {
  std::atomic<std::uint32_t> length;  // bytes in `state`; 0: there is nothing to send
  std::uint16_t port;
  char address[64];
  char state[kMaxStateBytes];  // a frame of the agent link
};

Farewell::Farewell() {
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) page_ = static_cast<Page*>(memory);
}

Farewell::~Farewell() {
  if (page_) munmap(page_, sizeof(Page));
}

void Farewell::prepare(const std::string& address, std::uint16_t port, const rendezvous::AgentState& state) {
  if (!page_) return;
  clear();  // an agent that is killed in the middle of this leaves nothing
  rendezvous::AgentState left = state;
  left.failures.clear();  // the coordinator knows them, and they may be large
  left.left = true;
  const std::string frame = rendezvous::encode(left);
  if (frame.size() > sizeof page_->state || address.empty() || address.size() >= sizeof page_->address) return;
  page_->port = port;
  memcpy(page_->address, address.c_str(), address.size() + 1);
  memcpy(page_->state, frame.data(), frame.size());
  page_->length.store(static_cast<std::uint32_t>(frame.size()), std::memory_order_release);
}

void Farewell::clear() {
  if (page_) page_->length.store(0, std::memory_order_seq_cst);
}

void Farewell::send(const std::string& why, const LaunchConfig& config) const noexcept {
  const std::uint32_t length = page_ ? page_->length.load(std::memory_order_acquire) : 0;
  if (length == 0) return;
  try {
    rendezvous::FrameDecoder decoder;
    decoder.feed({page_->state, length});
    const auto message = decoder.next();
    auto state = std::get<rendezvous::AgentState>(message);
    state.stopped_because = why;
    Connection connection(page_->address, page_->port);
    auto cipher = shake_hands(connection, rendezvous::endpoint(page_->address, page_->port), config);
    if (!cipher || !connection.write(cipher->seal(rendezvous::encode(state)))) return;
    while (connection.read()) {
    }  // until the coordinator has closed the link: it has read the message
  } catch (const std::exception&) {
    // The coordinator finds out by itself.
  }
}

}  // namespace ddp::launcher
