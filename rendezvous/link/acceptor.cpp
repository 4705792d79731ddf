// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <utility>
#include <variant>

#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/rare_log.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/peer_user.hpp"
#include "rendezvous/net/silence.hpp"

namespace ddp::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

// Returns whether all bytes were sent. A handshake fits any socket's buffer, so a full one means that the other side
// does not read.
bool send_at_once(int fd, const std::string& bytes) {
  const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size());
}

}  // namespace

// Pending handlers keep it alive; stopped_ says that its owner is gone.
class LinkAcceptor::Loop : public std::enable_shared_from_this<LinkAcceptor::Loop> {
 public:
  Loop(asio::io_context& io, Options options, OnLink on_link)
      : io_(io), options_(std::move(options)), on_link_(std::move(on_link)), timer_(io), log_(options_.log) {}

  asio::io_context& io() { return io_; }

  void begin(Descriptor fd, const std::string& first_bytes) {
    if (stopped_) return;
    LinkSocket socket = link_socket(io_, std::move(fd));
    if (!socket.is_open()) return;  // the agent will try again
    const int on = 1;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);

    if (pending_.size() >= most_pending_) make_room();
    const auto pending = std::make_shared<PendingHandshake>(std::move(socket), options_, Clock::now() + options_.limit);
    pending->number = ++last_number_;
    if (const auto ends = ends_of(pending->socket.native_handle())) pending->share = share_of(ends->peer.address);
    pending->place = pending_.insert(pending_.end(), pending);
    if (pending_.size() == 1) set_timer();
    on_bytes(pending, first_bytes);
  }

  void stop() {
    stopped_ = true;
    timer_.cancel();
    while (!pending_.empty()) close(*pending_.front());
  }

 private:
  // One handshake.
  struct PendingHandshake {
    PendingHandshake(LinkSocket connected, const Options& options, Clock::time_point until)
        : socket(std::move(connected)), handshake(options.membership, options.job), deadline(until) {}
    LinkSocket socket;
    CoordinatorHandshake handshake;
    Clock::time_point deadline;
    std::array<char, 256> buffer;
    std::uint64_t number = 0;  // in the order of arrival
    std::string share;         // as share_of() says; empty for a link within this process
    std::list<std::shared_ptr<PendingHandshake>>::iterator place;  // in pending_, while the socket is open
  };
  using PendingPtr = std::shared_ptr<PendingHandshake>;

  // Ends the oldest handshakes of the address that has most of them.
  void make_room() {
    std::vector<OpenConnection> open;
    std::map<std::uint64_t, PendingPtr> by_number;
    for (const PendingPtr& pending : pending_) {
      open.push_back({.id = pending->number, .share = pending->share});
      by_number[pending->number] = pending;
    }
    for (const std::uint64_t number : choose_silent(std::move(open))) {
      refuse(*by_number[number], "too many handshakes at once");
    }
  }

  void read(const PendingPtr& pending) {
    pending->socket.async_read_some(asio::buffer(pending->buffer),
                                    [self = shared_from_this(), pending](const auto& error, std::size_t size) {
                                      if (!pending->socket.is_open()) return;  // refused or handed over meanwhile
                                      if (error) return self->refuse(*pending, pending->handshake.ended().why);
                                      self->on_bytes(pending, {pending->buffer.data(), size});
                                    });
  }

  void on_bytes(const PendingPtr& pending, std::string_view bytes) {
    std::string answer;
    HandshakeVerdict verdict = pending->handshake.feed(bytes, answer);
    const bool is_sent = send_at_once(pending->socket.native_handle(), answer);
    if (const auto* failed = std::get_if<HandshakeFailed>(&verdict)) {
      if (failed->kind == HandshakeFailed::Kind::OtherJob) return close(*pending);  // it goes on to its own
      return refuse(*pending, failed->why);
    }
    if (!is_sent) return refuse(*pending, "it does not read");
    if (auto* done = std::get_if<HandshakeDone>(&verdict)) return hand_over(*pending, std::move(*done));
    read(pending);
  }

  void hand_over(PendingHandshake& pending, HandshakeDone done) {
    Descriptor socket(pending.socket.release());
    forget(pending);
    std::string address = peer_address(socket.get());
    std::string arrived_at = local_address(socket.get());
    on_link_({std::move(socket), std::move(done.beyond), LinkCipher(LinkRole::Coordinator, done.keys),
              std::move(address), std::move(arrived_at)});
  }

  void refuse(PendingHandshake& pending, const std::string& why) {
    const int socket = pending.socket.native_handle();
    const bool is_said = log_.write("agent link: refused " + peer_of(socket) + ": " + why);
    if (is_said && options_.on_refused) options_.on_refused(peer_address(socket), why);
    close(pending);
  }

  void close(PendingHandshake& pending) {
    boost::system::error_code ignored;
    pending.socket.close(ignored);
    forget(pending);
  }

  // Takes it off the list. Its handlers may still hold it.
  void forget(PendingHandshake& pending) { pending_.erase(std::exchange(pending.place, pending_.end())); }

  // Sets the timer for the oldest handshake: all have the same limit, so none is due before it.
  void set_timer() {
    if (pending_.empty()) return;
    timer_.expires_at(pending_.front()->deadline);
    timer_.async_wait([self = shared_from_this()](const auto& error) {
      if (!error && !self->stopped_) self->on_timer();
    });
  }

  void on_timer() {
    const Clock::time_point now = Clock::now();
    while (!pending_.empty() && pending_.front()->deadline <= now) {
      const PendingPtr oldest = pending_.front();
      refuse(*oldest, "only half a handshake in " + to_string(options_.limit));
    }
    set_timer();
  }

  asio::io_context& io_;
  const Options options_;
  const OnLink on_link_;
  asio::steady_timer timer_;
  const std::size_t most_pending_ = std::min(options_.max_pending, most_silent_links());
  std::list<PendingPtr> pending_;  // oldest first
  std::uint64_t last_number_ = 0;
  RareLog log_;
  bool stopped_ = false;
};

LinkAcceptor::LinkAcceptor(asio::io_context& io, Options options, OnLink on_link)
    : loop_(std::make_shared<Loop>(io, std::move(options), std::move(on_link))) {}

LinkAcceptor::~LinkAcceptor() { loop_->stop(); }

void LinkAcceptor::accept(Descriptor socket, std::string first_bytes) {
  // If the loop ends first, the handler is destroyed and closes the socket.
  asio::post(loop_->io(), [loop = loop_, socket = std::move(socket), bytes = std::move(first_bytes)]() mutable {
    loop->begin(std::move(socket), bytes);
  });
}

}  // namespace ddp::rendezvous
