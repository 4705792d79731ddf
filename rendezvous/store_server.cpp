// SPDX-License-Identifier: BSD-3-Clause
// Loop owns everything and runs on its own thread; a Session is one connection. Handlers are only told that a socket is
// ready; they read or write what there is, without blocking, and ask to be told again. One turn reads one connection
// once; all answers this brings, to whomever, are gathered by connection and then written, each with one call.
#include "rendezvous/store_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "rendezvous/error.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::rendezvous {
namespace {

using boost::system::error_code;
using Descriptor = asio::posix::stream_descriptor;

constexpr ConnectionId kServerItself = 0;                // who asks when set() is called
constexpr std::size_t kReadBytes = 64 * 1024;            // at most, from one connection in one turn
constexpr std::size_t kWriteBytes = 1024 * 1024;         // likewise
constexpr std::size_t kKeepBytes = 64 * 1024;            // of an output buffer that was larger once
constexpr int kAcceptsPerTurn = 256;                     // then those already connected have a turn
constexpr int kBacklogAtMost = 64 * 1024;                // connections that may wait to be accepted
constexpr std::chrono::milliseconds kAcceptBackOff{20};  // while there is no file descriptor
constexpr std::chrono::seconds kAnswerLimit{10};         // the thread answers in milliseconds; else it is stuck

// The process's signals belong to its main thread. A thread inherits the mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

struct Session {
  Session(asio::io_context& io, ConnectionId its_id, int fd) : id(its_id), socket(io, fd) {}

  ConnectionId id;
  Descriptor socket;
  Decoder decoder;
  std::string unparsed;  // read, but left for when its answers have been sent
  std::string out;       // answers; those before `sent` have left
  std::size_t sent = 0;
  bool reading = false;  // a handler will come for more input
  bool writing = false;  // a handler will come when the socket takes more output
  bool touched = false;  // has output from this turn
  std::optional<asio::steady_timer> grace;

  bool is_open() const { return socket.is_open(); }
  std::size_t unsent() const { return out.size() - sent; }
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(const std::vector<int>& listening_sockets);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void reset();
  void set(std::string key, std::string value);

 private:
  struct Listener {
    Descriptor socket;
    asio::steady_timer back_off;
  };

  void await_clients(Listener& listener);
  void accept(Listener& listener);
  void welcome(int fd);

  void await_input(const SessionPtr& session);
  void read(const SessionPtr& session);
  void feed(const SessionPtr& session, std::string_view input);
  bool apply_all(Session& session, std::string_view& input);
  void settle_after_grace(const SessionPtr& session);

  void apply(ConnectionId from, Request&& request);
  void queue(ConnectionId to, std::string&& bytes);
  void flush_touched();
  void flush(const SessionPtr& session);
  void close(Session& session);
  void close_everything();

  asio::io_context io_{1};  // first: the others live in it
  std::list<Listener> listeners_;
  std::unordered_map<ConnectionId, SessionPtr> sessions_;
  ConnectionId last_id_ = kServerItself;
  StoreCore core_;
  Replies replies_;                  // of the request being applied
  std::vector<SessionPtr> touched_;  // of this turn
  std::array<char, kReadBytes> input_;
  std::thread thread_;  // last: it uses the others
};

StoreServer::Loop::Loop(const std::vector<int>& listening_sockets) {
  for (const int fd : listening_sockets) listeners_.push_back({Descriptor(io_, fd), asio::steady_timer(io_)});
  for (Listener& listener : listeners_) await_clients(listener);
  const SignalsBlocked signals_blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "ddprun-store");
    io_.run();
  });
}

StoreServer::Loop::~Loop() {
  io_.stop();
  thread_.join();
}

// ---- From other threads ----

void StoreServer::Loop::reset() {
  const auto done = std::make_shared<std::promise<void>>();
  auto answer = done->get_future();
  asio::post(io_, [this, done] {
    close_everything();
    done->set_value();
  });
  if (answer.wait_for(kAnswerLimit) != std::future_status::ready) {
    throw Error(ErrorCode::System, "store server: its thread did not answer in 10 s; is this machine out of memory?");
  }
}

void StoreServer::Loop::set(std::string key, std::string value) {
  asio::post(io_, [this, request = Request{Op::Set, {std::move(key)}, {std::move(value)}}]() mutable {
    apply(kServerItself, std::move(request));
    flush_touched();
  });
}

// ---- Accepting ----

void StoreServer::Loop::await_clients(Listener& listener) {
  listener.socket.async_wait(Descriptor::wait_read, [this, &listener](error_code error) {
    if (!error) accept(listener);
  });
}

void StoreServer::Loop::accept(Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = ::accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      welcome(fd);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR && errno != ECONNABORTED) {  // EMFILE, ENFILE, ENOMEM: it will pass
      listener.back_off.expires_after(kAcceptBackOff);
      listener.back_off.async_wait([this, &listener](error_code error) {
        if (!error) accept(listener);
      });
      return;
    }
  }
  await_clients(listener);
}

void StoreServer::Loop::welcome(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto session = std::make_shared<Session>(io_, ++last_id_, fd);
  sessions_.emplace(session->id, session);
  await_input(session);
}

// ---- Input ----

// Nothing is read from a connection that does not take its answers; flush() comes back here once it has.
void StoreServer::Loop::await_input(const SessionPtr& session) {
  if (!session->is_open() || session->reading || session->unsent() > kUnsentLimit) return;
  session->reading = true;
  if (!session->unparsed.empty()) {
    asio::post(io_, [this, session] {
      session->reading = false;
      if (session->is_open()) feed(session, std::exchange(session->unparsed, {}));
    });
  } else {
    session->socket.async_wait(Descriptor::wait_read, [this, session](error_code error) {
      session->reading = false;
      if (!error && session->is_open()) read(session);
    });
  }
}

void StoreServer::Loop::read(const SessionPtr& session) {
  const auto size = ::recv(session->socket.native_handle(), input_.data(), input_.size(), 0);
  if (size > 0) return feed(session, {input_.data(), static_cast<std::size_t>(size)});
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return await_input(session);
  close(*session);
}

void StoreServer::Loop::feed(const SessionPtr& session, std::string_view input) {
  const bool welcome_still = apply_all(*session, input);
  flush_touched();
  if (!session->is_open()) return;
  if (!welcome_still) return close(*session);
  session->unparsed = input;
  if (session->decoder.undecided()) settle_after_grace(session);
  await_input(session);
}

// False: this client must go.
bool StoreServer::Loop::apply_all(Session& session, std::string_view& input) {
  while (session.is_open() && session.unsent() <= kUnsentLimit) {
    Decoded decoded = session.decoder.decode(input);
    if (std::holds_alternative<NeedMore>(decoded)) return true;
    if (std::holds_alternative<Malformed>(decoded)) return false;
    apply(session.id, std::get<Request>(std::move(decoded)));
    if (!replies_.close.empty()) return false;
  }
  return true;
}

void StoreServer::Loop::settle_after_grace(const SessionPtr& session) {
  if (session->grace) return;  // once a connection: then its generation is known
  session->grace.emplace(io_, kUndecidedGrace);
  session->grace->async_wait([this, session](error_code error) {
    if (error || !session->is_open() || !session->decoder.undecided()) return;
    apply(session->id, session->decoder.settle());
    flush_touched();
  });
}

// ---- Answers ----

void StoreServer::Loop::apply(ConnectionId from, Request&& request) {
  replies_.clear();
  core_.apply(from, std::move(request), replies_);
  for (Replies::Send& send : replies_.send) queue(send.to, std::move(send.bytes));
}

void StoreServer::Loop::queue(ConnectionId to, std::string&& bytes) {
  const auto found = sessions_.find(to);
  if (found == sessions_.end()) return;  // closed a moment ago, in this very turn
  const SessionPtr session = found->second;
  if (session->unsent() + bytes.size() > kUnsentHardLimit) return close(*session);
  if (session->out.empty()) {
    session->out = std::move(bytes);
  } else {
    session->out += bytes;
  }
  if (!std::exchange(session->touched, true)) touched_.push_back(session);
}

void StoreServer::Loop::flush_touched() {
  for (const SessionPtr& session : touched_) {
    session->touched = false;
    flush(session);
  }
  touched_.clear();
}

void StoreServer::Loop::flush(const SessionPtr& session) {
  if (!session->is_open() || session->writing) return;
  const std::size_t size = std::min(session->unsent(), kWriteBytes);
  const auto sent = ::send(session->socket.native_handle(), session->out.data() + session->sent, size, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return close(*session);
  if (sent > 0) session->sent += static_cast<std::size_t>(sent);
  if (session->unsent() == 0) {
    session->sent = 0;
    session->out.clear();
    if (session->out.capacity() > kKeepBytes) session->out.shrink_to_fit();
    return;
  }
  if (session->sent > session->out.size() / 2) session->out.erase(0, std::exchange(session->sent, 0));
  session->writing = true;
  session->socket.async_wait(Descriptor::wait_write, [this, session](error_code error) {
    session->writing = false;
    if (error || !session->is_open()) return;
    flush(session);
    await_input(session);
  });
}

// ---- Ends ----

void StoreServer::Loop::close(Session& session) {
  if (!session.is_open()) return;
  error_code ignored;
  session.socket.close(ignored);
  if (session.grace) session.grace->cancel();
  core_.disconnected(session.id);
  sessions_.erase(session.id);  // handlers under way keep it alive
}

void StoreServer::Loop::close_everything() {
  core_.reset();
  const auto sessions = std::exchange(sessions_, {});
  for (const auto& [id, session] : sessions) close(*session);
  for (Listener& listener : listeners_) {  // who is not accepted yet belongs to the old round as well
    int fd = 0;
    for (int i = 0; i < kBacklogAtMost && fd >= 0; ++i) {
      fd = ::accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) ::close(fd);
    }
  }
}

// ---- The face ----

StoreServer::StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port) {
  const Listeners listeners = listen_on(numeric_addresses, port);
  port_ = listeners.port;
  loop_ = std::make_unique<Loop>(listeners.sockets);
}

StoreServer::~StoreServer() = default;

void StoreServer::reset() { loop_->reset(); }
void StoreServer::set(std::string key, std::string value) { loop_->set(std::move(key), std::move(value)); }

}  // namespace ddp::rendezvous
