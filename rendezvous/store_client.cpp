// SPDX-License-Identifier: BSD-3-Clause
// A connection is a stream: requests queue up in `out_`, answers come back in the same order, and `owed_` says what is
// still to come. A call that runs out of time leaves its answer owed, and the next call throws it away when it arrives;
// so a deadline never puts the stream out of step.
#include "rendezvous/store_client.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/c10d_protocol.hpp"
#include "rendezvous/error.hpp"

namespace ddp::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Milliseconds = StoreClient::Milliseconds;

constexpr char kWhoToBlame[] = " (is the agent on node 0, or rank 0, running?)";
constexpr std::size_t kReceiveBytes = 64 * 1024;
constexpr Milliseconds kFirstRetry{10};     // the server is often only a moment late,
constexpr Milliseconds kSlowestRetry{500};  // and a thousand clients must not keep it from starting
constexpr Milliseconds kCancelGrace{1000};  // a WAIT that ran out is cancelled; a live server confirms it at once

enum class Shape { Byte, Number, Nonce, Text, Cancelled };  // of an answer; Cancelled: a WAIT's, then its CANCEL_WAIT's

// How long the answer at the front of the bytes is; none: more must come before it is known.
std::optional<std::size_t> length_of(Shape shape, std::string_view bytes) {
  switch (shape) {
    case Shape::Byte:
      return 1;
    case Shape::Number:
      return 8;
    case Shape::Nonce:
      return 4;
    case Shape::Text:
      if (bytes.size() < 8) return std::nullopt;
      return 8 + read_integer(bytes.substr(0, 8));
    case Shape::Cancelled:  // 01; or, if the release was under way already, 00 01
      if (bytes.empty()) return std::nullopt;
      return bytes[0] == 0 ? 2 : 1;
  }
  return std::nullopt;
}

std::string in_words(Milliseconds time) {
  if (time.count() < 1000 || time.count() % 1000 != 0) return std::to_string(time.count()) + " ms";
  return std::to_string(time.count() / 1000) + " s";
}

std::string quoted(const std::vector<std::string>& keys) {
  std::string text = keys.size() == 1 ? "key" : "keys";
  const std::size_t shown = std::min<std::size_t>(keys.size(), 4);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? " \"" : ", \"") + keys[i].substr(1) + "\"";
  if (keys.size() > shown) text += " and " + std::to_string(keys.size() - shown) + " more";
  return text;
}

std::string what_for(const Request& request) {
  const std::string key = request.keys.empty() ? "" : " key \"" + request.key().substr(1) + "\"";
  switch (request.op) {
    case Op::Ping:
      return "greeting it";
    case Op::Set:
      return "setting" + key;
    case Op::Add:
      return "adding to" + key;
    case Op::CompareSet:
      return "comparing and setting" + key;
    case Op::DeleteKey:
      return "deleting" + key;
    case Op::Check:
      return "looking for" + key;
    default:
      return "reading" + key;
  }
}

std::string reason_of(int error) {
  if (error == ECONNRESET || error == EPIPE) return "the store closed the connection";
  if (error == ETIMEDOUT) return "nothing came back";
  return std::generic_category().message(error);
}

// Reasons to try again: the server is not up yet, is overrun, or its machine is still coming up.
bool passes(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      return true;
    default:
      return false;
  }
}

// Milliseconds for poll(): rounded up, so that it does not wake just before the deadline.
int until(Deadline deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// A connect to a free port of this machine's may meet itself, and then nobody else can listen there.
bool met_itself(int fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t size = sizeof here;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof there;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  return std::memcmp(&here, &there, size) == 0;
}

std::string on_wire(std::string_view key) { return "/" + std::string(key); }

std::vector<std::string> on_wire(const std::vector<std::string>& keys) {
  std::vector<std::string> wire;
  wire.reserve(keys.size());
  for (const std::string& key : keys) wire.push_back(on_wire(key));
  return wire;
}

std::string text_of(std::string answer) { return answer.erase(0, 8); }
std::int64_t number_of(const std::string& answer) { return static_cast<std::int64_t>(read_integer(answer)); }

}  // namespace

class StoreClient::Connection {
 public:
  Connection(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void connect(Milliseconds timeout);
  void tell(const Request& request, Milliseconds timeout);  // one that has no answer
  std::string ask(const Request& request, Shape shape, Milliseconds timeout);
  void wait(const Request& request, Milliseconds timeout);
  std::string local_address() const;

 private:
  struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
  };

  // 0 or an errno: ETIMEDOUT when the deadline passed, ECONNRESET when the store closed the connection.
  int open(const Address& address, Deadline deadline);
  int greet(Deadline deadline);
  int answer(Deadline deadline, std::string& bytes);
  int progress(Deadline deadline);
  int send_some();
  int receive_some();

  bool resolve();
  void require_possible(const Request& request) const;  // within the limits, on a connection that is alive
  Error lost(const Request& request) const;
  [[noreturn]] void fail(int error, const Request& request, Milliseconds timeout);
  std::string name() const;
  void close();

  std::mutex mutex_;
  const std::string host_;
  const std::uint16_t port_;
  std::string cause_;  // of the latest failure to resolve or connect; later: of this connection's death
  std::vector<Address> addresses_;
  int fd_ = -1;
  std::string out_;
  std::string in_;
  std::deque<Shape> owed_;
};

// ---- Connecting ----

void StoreClient::Connection::connect(Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  for (Milliseconds pause = kFirstRetry;; pause = std::min(2 * pause, kSlowestRetry)) {
    bool hope = !resolve();  // a name may still appear in the DNS
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      // A silent address must leave some time for the next one.
      const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
      int error = open(addresses_[i], Clock::now() + left / static_cast<int>(addresses_.size() - i));
      if (error == 0) error = greet(deadline);
      if (error == 0) return cause_.clear();
      close();
      cause_ = reason_of(error);
      hope = hope || passes(error);
    }
    if (!hope) throw Error(ErrorCode::System, name() + ": cannot connect: " + cause_);
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  throw Error(ErrorCode::Timeout, name() + ": no answer in " + in_words(timeout) + ": " + cause_ + kWhoToBlame);
}

bool StoreClient::Connection::resolve() {
  if (!addresses_.empty()) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found);
  if (error != 0) {
    cause_ = "cannot resolve this name: " + std::string(::gai_strerror(error));
    return false;
  }
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address address{{}, each->ai_addrlen};
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    addresses_.push_back(address);
  }
  ::freeaddrinfo(found);
  return true;
}

int StoreClient::Connection::open(const Address& address, Deadline deadline) {
  fd_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd_ < 0) return errno;
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd ready{fd_, POLLOUT, 0};
  int count = 0;
  while ((count = ::poll(&ready, 1, until(deadline))) < 0 && errno == EINTR) {
  }
  if (count < 0) return errno;
  if (count == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  return error != 0 ? error : met_itself(fd_) ? ECONNREFUSED : 0;
}

// VALIDATE has no answer, PING brings back what it was sent. A server that is overrun may still close on us here.
int StoreClient::Connection::greet(Deadline deadline) {
  const Request ping{.op = Op::Ping, .number = ::getpid()};
  append_validate(out_);
  append_request(out_, ping);
  owed_.push_back(Shape::Nonce);
  std::string nonce;
  const int error = answer(deadline, nonce);
  if (error == 0 && static_cast<std::int64_t>(read_integer(nonce)) != ping.number) {
    throw Error(ErrorCode::System, name() + ": something else than a store answers there; is the port right?");
  }
  return error;
}

// ---- One request ----

void StoreClient::Connection::tell(const Request& request, Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  require_possible(request);
  const Deadline deadline = Clock::now() + timeout;
  append_request(out_, request);
  if (int error = send_some(); error != 0) fail(error, request, timeout);
  while (!out_.empty()) {
    if (const int error = progress(deadline); error != 0) fail(error, request, timeout);
  }
}

std::string StoreClient::Connection::ask(const Request& request, Shape shape, Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  require_possible(request);
  append_request(out_, request);
  owed_.push_back(shape);
  std::string bytes;
  if (const int error = answer(Clock::now() + timeout, bytes); error != 0) fail(error, request, timeout);
  return bytes;
}

void StoreClient::Connection::wait(const Request& request, Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  require_possible(request);
  append_request(out_, request);
  owed_.push_back(Shape::Byte);
  std::string bytes;
  int error = answer(Clock::now() + timeout, bytes);
  if (error == 0) return;
  if (error != ETIMEDOUT) fail(error, request, timeout);

  append_request(out_, {.op = Op::CancelWait});
  owed_.back() = Shape::Cancelled;
  error = answer(Clock::now() + kCancelGrace, bytes);
  if (error != 0) fail(error, request, timeout);
  if (bytes.front() == static_cast<char>(Answer::StopWaiting)) return;  // the release was on its way
  throw Error(ErrorCode::Timeout, name() + ": " + quoted(request.keys) + " not set within " + in_words(timeout) +
                                      " (is the worker that sets it running?)");
}

// The answer to the request sent last; those to earlier ones, whose callers have given up, are dropped on the way.
int StoreClient::Connection::answer(Deadline deadline, std::string& bytes) {
  if (const int error = send_some(); error != 0) return error;
  while (true) {
    const auto length = length_of(owed_.front(), in_);
    if (!length || in_.size() < *length) {
      if (const int error = progress(deadline); error != 0) return error;
      continue;
    }
    bytes.assign(in_, 0, *length);
    in_.erase(0, *length);
    owed_.pop_front();
    if (owed_.empty()) return 0;
  }
}

int StoreClient::Connection::progress(Deadline deadline) {
  pollfd ready{fd_, static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  const int count = ::poll(&ready, 1, until(deadline));
  if (count < 0) return errno == EINTR ? 0 : errno;
  if (count == 0) return Clock::now() < deadline ? 0 : ETIMEDOUT;
  if ((ready.revents & POLLOUT) != 0) {
    if (const int error = send_some(); error != 0) return error;
  }
  return (ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? receive_some() : 0;
}

int StoreClient::Connection::send_some() {
  const auto sent = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
  out_.erase(0, static_cast<std::size_t>(sent));
  return 0;
}

int StoreClient::Connection::receive_some() {
  char bytes[kReceiveBytes];
  const auto size = ::recv(fd_, bytes, sizeof bytes, 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
  if (size == 0) return ECONNRESET;
  in_.append(bytes, static_cast<std::size_t>(size));
  return 0;
}

// ---- Failing ----

void StoreClient::Connection::require_possible(const Request& request) const {
  for (const std::string& key : request.keys) {
    if (key.size() > kMaxKeyBytes) {
      throw Error(ErrorCode::InvalidArgument, name() + ": a key may have " + std::to_string(kMaxKeyBytes - 1) +
                                                  " bytes, not " + std::to_string(key.size() - 1));
    }
  }
  for (const std::string& value : request.values) {
    if (value.size() > kMaxValueBytes) {
      throw Error(ErrorCode::InvalidArgument, name() + ": " + quoted(request.keys) + ": a value may have " +
                                                  std::to_string(kMaxValueBytes) + " bytes, not " +
                                                  std::to_string(value.size()));
    }
  }
  if (request.keys.size() > kMaxKeysPerRequest) {
    throw Error(ErrorCode::InvalidArgument, name() + ": one call may name " + std::to_string(kMaxKeysPerRequest) +
                                                " keys, not " + std::to_string(request.keys.size()));
  }
  if (fd_ < 0) throw lost(request);
}

Error StoreClient::Connection::lost(const Request& request) const {
  return Error(ErrorCode::System, name() + ": " + what_for(request) + ": " + cause_);
}

void StoreClient::Connection::fail(int error, const Request& request, Milliseconds timeout) {
  if (error == ETIMEDOUT) {
    throw Error(ErrorCode::Timeout,
                name() + ": no answer in " + in_words(timeout) + " to " + what_for(request) + kWhoToBlame);
  }
  close();
  cause_ = reason_of(error) + " (did the job end or restart?)";
  throw lost(request);
}

std::string StoreClient::Connection::name() const {
  return "store " + (host_.find(':') == std::string::npos ? host_ : "[" + host_ + "]") + ":" + std::to_string(port_);
}

void StoreClient::Connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  out_.clear();
  in_.clear();
  owed_.clear();
}

std::string StoreClient::Connection::local_address() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char text[NI_MAXHOST];
  if (::getsockname(fd_, address, &size) != 0 ||
      ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    throw Error(ErrorCode::System, name() + ": cannot tell this side's address: " + reason_of(errno));
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view found = text;
  return std::string(found.starts_with(kMapped) && found.find('.') != found.npos ? found.substr(kMapped.size())
                                                                                 : found);
}

// ---- The face ----

StoreClient::StoreClient(std::string host, std::uint16_t port, Milliseconds timeout)
    : timeout_(timeout), connection_(std::make_unique<Connection>(std::move(host), port)) {
  connection_->connect(timeout);
}

StoreClient::~StoreClient() = default;

void StoreClient::set(std::string_view key, std::string_view value) {
  connection_->tell({.op = Op::Set, .keys = {on_wire(key)}, .values = {std::string(value)}}, timeout_);
}

std::string StoreClient::get(std::string_view key, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  connection_->wait({.op = Op::Wait, .keys = {on_wire(key)}}, timeout);
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  return text_of(connection_->ask({.op = Op::Get, .keys = {on_wire(key)}}, Shape::Text, std::max(left, kCancelGrace)));
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta) {
  return number_of(connection_->ask({.op = Op::Add, .keys = {on_wire(key)}, .number = delta}, Shape::Number, timeout_));
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const Request request{
      .op = Op::CompareSet, .keys = {on_wire(key)}, .values = {std::string(expected), std::string(desired)}};
  return text_of(connection_->ask(request, Shape::Text, timeout_));
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::string answer = connection_->ask({.op = Op::Check, .keys = on_wire(keys)}, Shape::Byte, timeout_);
  return answer.front() == static_cast<char>(Answer::Ready);
}

void StoreClient::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  connection_->wait({.op = Op::Wait, .keys = on_wire(keys)}, timeout);
}

bool StoreClient::delete_key(std::string_view key) {
  return number_of(connection_->ask({.op = Op::DeleteKey, .keys = {on_wire(key)}}, Shape::Number, timeout_)) > 0;
}

std::string StoreClient::local_address() const { return connection_->local_address(); }

}  // namespace ddp::rendezvous
