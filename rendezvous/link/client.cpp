// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/client.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <random>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/stream.hpp"
#include "rendezvous/membership/handshake.hpp"
#include "rendezvous/net/addresses/name_lookup.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/peer_user.hpp"

namespace ddp::rendezvous {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kFailuresShown = 4;
constexpr double kJitter = 0.2;  // share of a wait, either way, so that thousands of agents do not come back in step

std::string describe(const boost::system::error_code& error) {
  if (error == asio::error::eof) return "it closed the connection";
  std::string text = std::generic_category().message(error.value());
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace

// Pending handlers keep it alive. Each step of a try ends the step before it by replacing the object that it waits on;
// a late handler finds another object there, or `over_`, and does nothing.
class LinkClient::Loop : public std::enable_shared_from_this<LinkClient::Loop> {
 public:
  Loop(asio::io_context& io, LinkTarget target, Membership membership, Callbacks callbacks, LinkTiming timing)
      : io_(io),
        target_(std::move(target)),
        membership_(std::move(membership)),
        callbacks_(std::move(callbacks)),
        timing_(timing),
        timer_(io),
        wait_(timing.shortest_wait) {}

  Loop(asio::io_context& io, Descriptor connected, Callbacks callbacks)
      : Loop(io, LinkTarget(), Membership(), std::move(callbacks), {}) {
    paired_ = link_socket(io_, std::move(connected));
  }

  Loop(asio::io_context& io, std::function<Descriptor()> connect, Callbacks callbacks)
      : Loop(io, LinkTarget(), Membership(), std::move(callbacks), {}) {
    connect_ = std::move(connect);
  }

  void start() {
    asio::post(io_, [self = shared_from_this()] {
      if (self->over_) return;
      if (!self->paired_) return self->look_up();
      self->is_pair_ = true;
      self->up(std::move(*self->paired_), {}, {});
    });
  }

  template <typename Message>
  void send(const Message& message) {
    if (link_) link_->send(message);
  }

  void reconnect(const std::string& why) {
    if (over_ || is_pair_ || paired_) return;
    asio::post(io_, [self = shared_from_this(), why, link = link_] {
      if (self->over_ || self->link_ != link) return;  // the link broke by itself meanwhile, and on_down said so
      if (link) {
        link->stop();
        self->down(why);
      }
      if (!self->over_ && self->is_waiting_) self->look_up();
    });
  }

  void stop() {
    over_ = true;
    is_waiting_ = false;
    looking_up_ = false;
    timer_.cancel();
    lookup_.reset();
    drop_attempt();
    paired_.reset();
    if (link_) std::exchange(link_, nullptr)->stop();
  }

  std::string local_address() const { return local_address_; }
  std::optional<ConnectionEnds> ends() const { return ends_; }
  std::uint16_t coordinator_port() const { return coordinator_port_; }

 private:
  // A connection to one address until its handshake is done.
  struct Attempt {
    Attempt(asio::io_context& io, AgentHandshake shaking) : socket(io), handshake(std::move(shaking)) {}
    LinkSocket socket;
    std::string address;  // numeric, with the port if there are several
    std::uint16_t port = 0;
    AgentHandshake handshake;
    std::array<char, 1024> buffer;
  };
  using AttemptPtr = std::shared_ptr<Attempt>;

  // ---- One try: a lookup, then each address in turn ----

  void look_up() {
    is_waiting_ = false;
    failures_.clear();
    addresses_.clear();
    if (connect_) {
      Descriptor end = connect_();
      if (!end) return unreachable(std::string("cannot hand over a link: ") + std::strerror(errno));
      LinkSocket socket = link_socket(io_, std::move(end));
      if (!socket.is_open()) return unreachable("no memory for a link");
      return up(std::move(socket), {}, {});
    }
    try {
      // A lookup that took too long in an earlier try is reused, so there is never more than one thread.
      if (!lookup_) {
        lookup_ = std::make_unique<NameLookup>(io_, target_.hosts, target_.ports);
        lookup_->async_wait([self = shared_from_this()] { self->looked_up(); });
      }
    } catch (const std::exception& error) {
      lookup_.reset();
      return unreachable(error.what());
    }
    looking_up_ = true;
    set_timer(timing_.try_limit, [](Loop& loop) {
      loop.looking_up_ = false;
      loop.unreachable("its name could not be resolved in " + to_string(loop.timing_.try_limit));
    });
    looked_up();
  }

  // Called when there may be an outcome: of this try's lookup, or of an earlier one's that no try waits for now.
  void looked_up() {
    if (!looking_up_ || !lookup_ || !lookup_->is_finished()) return;
    looking_up_ = false;
    const auto lookup = std::move(lookup_);
    if (!lookup->error().empty()) return unreachable("its name cannot be resolved: " + lookup->error());
    addresses_ = lookup->addresses();
    std::reverse(addresses_.begin(), addresses_.end());  // next_address() takes the last one
    try_until_ = Clock::now() + timing_.try_limit;
    next_address();
  }

  // Gives each address an equal share of the time that is left, so that one that drops packets does not hide the
  // others.
  void next_address() {
    drop_attempt();
    if (addresses_.empty()) return all_failed();
    const auto left = std::chrono::ceil<milliseconds>(std::max(try_until_ - Clock::now(), Clock::duration(0)));
    const auto share = left / static_cast<int>(addresses_.size());
    const FoundAddress address = addresses_.back();
    addresses_.pop_back();
    const bool is_one = target_.hosts.size() == 1;
    const std::string numeric = numeric_address(address.raw());
    const std::string where = endpoint(is_one ? target_.hosts.front() : numeric, address.port());
    attempt_ = std::make_shared<Attempt>(io_, AgentHandshake(where, membership_, target_.job));
    attempt_->address = target_.ports.size() == 1 ? numeric : endpoint(numeric, address.port());
    attempt_->port = address.port();
    set_timer(share, [share](Loop& loop) { loop.failed("no answer in " + to_string(share)); });
    connect(attempt_, address);
  }

  void connect(const AttemptPtr& attempt, const FoundAddress& address) {
    const int family = address.raw()->sa_family;
    Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    boost::system::error_code error;
    if (socket) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      attempt->socket.assign(asio::generic::stream_protocol(family, IPPROTO_TCP), socket.get(), error);
      if (!error) socket.release();
    } else {
      error = {errno, boost::system::system_category()};
    }
    if (error) return failed(describe(error));
    const asio::generic::stream_protocol::endpoint to(address.raw(), address.size);
    attempt->socket.async_connect(to, [self = shared_from_this(), attempt](const auto& result) {
      if (self->attempt_ != attempt) return;
      if (result) return self->failed(describe(result));
      self->send_at_once(attempt, attempt->handshake.preface());
      self->read(attempt);
    });
  }

  // Sends without waiting: a handshake fits any socket's buffer. If the connection is broken, the next read says why.
  static void send_at_once(const AttemptPtr& attempt, const std::string& bytes) {
    [[maybe_unused]] const auto sent =
        ::send(attempt->socket.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void read(const AttemptPtr& attempt) {
    attempt->socket.async_read_some(
        asio::buffer(attempt->buffer), [self = shared_from_this(), attempt](const auto& error, std::size_t size) {
          if (self->attempt_ != attempt) return;
          const bool has_ended = error == asio::error::eof || error == asio::error::connection_reset;
          if (has_ended) return self->conclude(attempt, attempt->handshake.ended());
          if (error) return self->failed(describe(error));
          std::string answer;
          HandshakeVerdict verdict = attempt->handshake.feed({attempt->buffer.data(), size}, answer);
          self->send_at_once(attempt, answer);
          self->conclude(attempt, std::move(verdict));
        });
  }

  void conclude(const AttemptPtr& attempt, HandshakeVerdict verdict) {
    if (std::holds_alternative<HandshakeGoesOn>(verdict)) return read(attempt);
    if (auto* done = std::get_if<HandshakeDone>(&verdict)) {
      if (const std::string owner = strange_owner(*attempt); !owner.empty()) {
        stop();
        return callbacks_.on_refused("port " + std::to_string(attempt->port) + " of this machine belongs to " + owner +
                                     "; take another port, or give all nodes a secret (--make-secret)");
      }
      timer_.cancel();
      attempt_.reset();
      local_address_ = rendezvous::local_address(attempt->socket.native_handle());
      ends_ = ends_of(attempt->socket.native_handle());
      coordinator_port_ = attempt->port;
      target_.ports = {attempt->port};  // the coordinator keeps it for all of its life
      return up(std::move(attempt->socket), done->beyond, LinkCipher(LinkRole::Agent, done->keys));
    }
    const auto& why_not = std::get<HandshakeFailed>(verdict);
    // What is of another job may be of another version, too.
    using Kind = HandshakeFailed::Kind;
    const bool may_be_strange = why_not.kind == Kind::OtherVersion && target_.job;
    if (why_not.kind == Kind::Stranger || why_not.kind == Kind::OtherJob || may_be_strange) return failed(why_not.why);
    stop();
    callbacks_.on_refused(why_not.why);
  }

  // Returns the user of a coordinator on this machine, if that is neither this user nor root, and has proven nothing.
  std::string strange_owner(Attempt& attempt) const {
    if (target_.any_user || membership_.kind() != Membership::Kind::Open) return "";
    const int socket = attempt.socket.native_handle();
    const auto ends = ends_of(socket);
    const auto answer = ends ? PeerUsers().of(socket, *ends) : PeerUsers::Gone{};
    const auto* const known = std::get_if<PeerUsers::Known>(&answer);
    return known && known->uid != 0 && known->uid != geteuid() ? user_name(known->uid) : "";
  }

  // Closes the socket, on which the handlers that keep the attempt alive would wait for ever.
  void drop_attempt() {
    if (!attempt_) return;
    boost::system::error_code ignored;
    std::exchange(attempt_, nullptr)->socket.close(ignored);
  }

  // This address failed: notes why and goes to the next one.
  void failed(const std::string& why) {
    failures_.push_back({attempt_->address, why});
    next_address();
  }

  // All addresses failed. Says "10.0.0.1: connection refused, fd00::1: no route to host", or one reason if all agree.
  void all_failed() {
    const bool is_one = std::all_of(failures_.begin(), failures_.end(),
                                    [this](const Failure& failure) { return failure.why == failures_[0].why; });
    if (is_one) return unreachable(failures_[0].why);
    std::vector<std::string> all;
    for (const Failure& failure : failures_) all.push_back(failure.address + ": " + failure.why);
    unreachable(list_of(all, kFailuresShown));
  }

  void unreachable(const std::string& why) {
    drop_attempt();
    wait();
    callbacks_.on_unreachable(why);
  }

  // ---- Between tries ----

  void wait() {
    std::uniform_real_distribution<double> factor(1 - kJitter, 1 + kJitter);
    is_waiting_ = true;
    set_timer(std::chrono::duration_cast<milliseconds>(wait_ * factor(random_)), [](Loop& loop) { loop.look_up(); });
    wait_ = std::min(wait_ * 2, timing_.longest_wait);
  }

  // One step at a time has a deadline, so there is one timer; setting it again revokes the deadline before.
  template <typename F>
  void set_timer(milliseconds after, F then) {
    timer_.expires_after(after);
    const auto number = ++timer_number_;
    timer_.async_wait([self = shared_from_this(), number, then](const auto& error) {
      if (!error && !self->over_ && self->timer_number_ == number) then(*self);
    });
  }

  // ---- The link ----

  void up(LinkSocket socket, const std::string& first_bytes, std::optional<LinkCipher> cipher) {
    ++timer_number_;
    const std::string peer = peer_address(socket.native_handle());
    const std::weak_ptr<Loop> weak = weak_from_this();  // the stream belongs to this object and must not keep it alive
    link_ = std::make_shared<LinkStream<Directive>>(
        std::move(socket),
        LinkStream<Directive>::Callbacks{.on_message =
                                             [weak](Directive directive) {
                                               const auto self = weak.lock();
                                               if (!self) return;
                                               self->wait_ = self->timing_.shortest_wait;
                                               self->callbacks_.on_message(std::move(directive));
                                             },
                                         .on_heartbeat =
                                             [weak] {
                                               const auto self = weak.lock();
                                               if (!self) return;
                                               self->wait_ = self->timing_.shortest_wait;
                                               self->callbacks_.on_heartbeat();
                                             },
                                         .on_closed =
                                             [weak](const std::string& why) {
                                               if (const auto self = weak.lock()) self->down(why);
                                             },
                                         .on_look_request = callbacks_.on_look_request,
                                         .on_look_answer = callbacks_.on_look_answer,
                                         .on_look_end = callbacks_.on_look_end,
                                         .on_clock = callbacks_.on_clock},
        std::move(cipher));
    link_->start(first_bytes);
    callbacks_.on_up(peer);
  }

  void down(const std::string& why) {
    link_.reset();
    if (is_pair_) {
      over_ = true;
    } else {
      wait();
    }
    callbacks_.on_down(why);
  }

  struct Failure {
    std::string address;
    std::string why;
  };

  asio::io_context& io_;
  LinkTarget target_;
  const Membership membership_;
  const Callbacks callbacks_;
  const LinkTiming timing_;

  asio::steady_timer timer_;
  std::uint64_t timer_number_ = 0;
  milliseconds wait_;  // before the next try
  std::minstd_rand random_{std::random_device{}()};
  bool is_waiting_ = false;
  bool over_ = false;

  std::function<Descriptor()> connect_;  // within this node
  std::optional<LinkSocket> paired_;     // before start()
  bool is_pair_ = false;

  std::unique_ptr<NameLookup> lookup_;  // null if none is under way
  bool looking_up_ = false;             // this try waits for lookup_
  std::vector<FoundAddress> addresses_;
  Clock::time_point try_until_;
  std::vector<Failure> failures_;
  AttemptPtr attempt_;

  std::shared_ptr<LinkStream<Directive>> link_;  // while up
  std::string local_address_;
  std::optional<ConnectionEnds> ends_;
  std::uint16_t coordinator_port_ = 0;
};

LinkClient::LinkClient(asio::io_context& io, LinkTarget target, Membership membership, Callbacks callbacks,
                       LinkTiming timing)
    : loop_(std::make_shared<Loop>(io, std::move(target), std::move(membership), std::move(callbacks), timing)) {}

LinkClient::LinkClient(asio::io_context& io, Descriptor connected, Callbacks callbacks)
    : loop_(std::make_shared<Loop>(io, std::move(connected), std::move(callbacks))) {}

LinkClient::LinkClient(asio::io_context& io, std::function<Descriptor()> connect, Callbacks callbacks)
    : loop_(std::make_shared<Loop>(io, std::move(connect), std::move(callbacks))) {}

LinkClient::~LinkClient() { loop_->stop(); }

void LinkClient::start() { loop_->start(); }
void LinkClient::send(const AgentState& state) { loop_->send(state); }
void LinkClient::send(const Heartbeat& heartbeat) { loop_->send(heartbeat); }
void LinkClient::send(const LookRequest& request) { loop_->send(request); }
void LinkClient::send(const LookAnswer& answer) { loop_->send(answer); }
void LinkClient::send(const ClockReading& question) { loop_->send(question); }
void LinkClient::reconnect(const std::string& why) { loop_->reconnect(why); }
void LinkClient::stop() { loop_->stop(); }
std::string LinkClient::local_address() const { return loop_->local_address(); }
std::optional<ConnectionEnds> LinkClient::ends() const { return loop_->ends(); }
std::uint16_t LinkClient::coordinator_port() const { return loop_->coordinator_port(); }

}  // namespace ddp::rendezvous
