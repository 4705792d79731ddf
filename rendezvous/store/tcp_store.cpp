// SPDX-License-Identifier: BSD-3-Clause
// A connection is a stream: requests queue up in `out_`, answers come back in the same order, and `owed_` lists the
// answers that are still to come. A call that runs out of time leaves its answer in `owed_`, and the next call discards
// it when it arrives, so a deadline never puts the stream out of step.
#include "rendezvous/store/tcp_store.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/c10d_protocol.hpp"

namespace ddp::rendezvous {
namespace {

using Clock = Store::Clock;
using Deadline = Store::Deadline;
using Milliseconds = Store::Milliseconds;

constexpr char kAdvice[] = " (is the agent on node 0, or rank 0, running?)";
constexpr std::size_t kReceiveBytes = 64 * 1024;
constexpr Milliseconds kFirstRetry{10};     // the server is often only a moment late,
constexpr Milliseconds kSlowestRetry{500};  // and a thousand clients must not keep it from starting
constexpr Milliseconds kCancelGrace{1000};  // a WAIT that ran out is cancelled; a live server confirms that at once
constexpr std::uint64_t kMostKeys = 1ULL << 40;  // text of another protocol, read as a number of keys, is more

constexpr char kWorkerCounter[] = "init/";  // the only key without a "/" before it

// Limit of an answer: what a server may send at once, after a number and a length. Nothing that a server announces is
// believed: memory is taken for what has come, and only up to here.
constexpr std::uint64_t kMaxAnswerBytes = kMaxReplyBytes + 16;

// Shape of an answer. Popped: a number and, unless it is 0, a text. Listed: a number and that many texts. Cancelled:
// the answer to a WAIT and then to its CANCEL_WAIT.
enum class AnswerShape { Byte, Number, Texts, Popped, Listed, Cancelled };
struct Answered {
  AnswerShape shape = AnswerShape::Byte;
  std::uint64_t texts = 1;  // how many Texts has
};

// An answer that is still to come, as far as it is known.
class Owed {
 public:
  explicit Owed(Answered answered) : shape_(answered.shape), texts_(answered.texts) {
    is_counted_ = shape_ != AnswerShape::Popped && shape_ != AnswerShape::Listed;
  }

  // Returns the length of the answer at the front of the bytes: exactly if all of it has come, else what is sure.
  std::uint64_t length(std::string_view bytes) {
    switch (shape_) {
      case AnswerShape::Byte:
        return 1;
      case AnswerShape::Number:
        return 8;
      case AnswerShape::Cancelled:  // 01, or 00 01 if the release was under way
        return !bytes.empty() && bytes[0] == 0 ? 2 : 1;
      case AnswerShape::Texts:
      case AnswerShape::Popped:
      case AnswerShape::Listed:
        break;
    }
    if (!is_counted_) {
      if (bytes.size() < 8) return 8;
      const std::uint64_t number = read_integer(bytes.substr(0, 8));
      texts_ = shape_ == AnswerShape::Listed ? number : std::min<std::uint64_t>(number, 1);
      end_ = 8;
      is_counted_ = true;
    }
    for (; texts_ > 0; --texts_) {
      if (bytes.size() - end_ < 8) return end_ + 8 * std::min(texts_, kMaxAnswerBytes);
      const std::uint64_t size = read_integer(bytes.substr(end_, 8));
      if (size > kMaxAnswerBytes) return size;
      if (bytes.size() - end_ - 8 < size) return end_ + 8 + size;
      end_ += 8 + size;
    }
    return end_;
  }

 private:
  AnswerShape shape_;
  std::uint64_t texts_;      // that have not come whole yet
  std::uint64_t end_ = 0;    // where the texts end that have come
  bool is_counted_ = false;  // the number in front of the texts has come, or there is none
};

// Returns the key as the user named it: on the wire all keys but one begin with "/".
std::string as_said(const std::string& key) { return key.starts_with('/') ? key.substr(1) : key; }

std::string what_for(const Request& request) {
  const std::string key = request.keys.empty() ? "no key" : describe_keys({as_said(request.key())});
  switch (request.op) {
    case Op::Set:
    case Op::MultiSet:
      return "setting " + key;
    case Op::Append:
      return "appending to " + key;
    case Op::Add:
      return "adding to " + key;
    case Op::CompareSet:
      return "comparing and setting " + key;
    case Op::DeleteKey:
      return "deleting " + key;
    case Op::Check:
      return "looking for " + key;
    case Op::GetNumKeys:
      return "counting its keys";
    case Op::ListKeys:
      return "listing its keys";
    case Op::QueuePush:
    case Op::QueuePop:
    case Op::QueueLen:
      return "using queue \"" + as_said(request.key()) + "\"";
    case Op::Barrier:
      return "entering barrier \"" + as_said(request.key()) + "\"";
    default:
      return "reading " + key;
  }
}

// Returns a likely reason. PyTorch's servers have no error answer: they close the connection at a request that they do
// not know or cannot carry out.
std::string why_closed(Op op) {
  switch (op) {
    case Op::Add:
      return " (is its value a number? did the job end or restart?)";
    case Op::ListKeys:
      return " (PyTorch's server lists keys from 2.10 on)";
    case Op::QueuePush:
    case Op::QueuePop:
    case Op::QueueLen:
      return " (PyTorch's server has queues from 2.8 on, and never with use_libuv=False)";
    case Op::Barrier:
      return " (PyTorch's server has barriers from 2.12 on; a PrefixStore's barrier works with all)";
    default:
      return " (did the job end or restart?)";
  }
}

std::string reason_of(int error) {
  if (error == ECONNRESET || error == EPIPE) return "the store closed the connection";
  if (error == ETIMEDOUT) return "nothing came back";
  return std::generic_category().message(error);
}

// Returns whether another try may succeed: the server is not up yet, is overrun, or its machine is still booting.
bool is_transient(int error) {
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

// Returns the milliseconds for poll(), rounded up, so that it does not wake just before the deadline.
int until(Deadline deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// Returns whether the socket is connected to itself, as a connect to a free port of this machine may be. A server could
// not listen there then.
bool is_connected_to_itself(int fd) {
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

template <typename F>
void for_each_text(std::string_view answer, F f) {
  while (!answer.empty()) {
    const std::uint64_t size = read_integer(answer.substr(0, 8));
    f(answer.substr(8, size));
    answer.remove_prefix(8 + size);
  }
}
std::vector<std::string> texts_of(std::string_view answer) {
  std::vector<std::string> texts;
  for_each_text(answer, [&texts](std::string_view text) { texts.emplace_back(text); });
  return texts;
}
std::string text_of(std::string answer) { return answer.erase(0, 8); }
std::int64_t number_of(std::string_view answer) { return static_cast<std::int64_t>(read_integer(answer.substr(0, 8))); }

}  // namespace

class TcpStore::Connection {
 public:
  Connection(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void connect(Milliseconds timeout);
  void tell(const Request& request, Milliseconds timeout);  // for requests without an answer
  std::string ask(const Request& request, Answered answered, Milliseconds timeout);
  bool wait(const Request& request, Milliseconds timeout);  // false: cancelled before it was released
  std::string local_address() const;
  std::string name() const;
  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }
  void interrupt();

 private:
  struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
  };

  // The right to use the connection, which one call has at a time. A call that does not get it before its deadline
  // fails like any other.
  class Turn {
   public:
    Turn(Connection& connection, const Request& request, Milliseconds timeout, Deadline deadline)
        : connection_(connection) {
      std::unique_lock lock(connection_.mutex_);
      if (!connection_.idle_.wait_until(lock, deadline, [this] { return !connection_.busy_; })) {
        throw Error(ErrorCode::Timeout, connection_.name() + ": " + what_for(request) +
                                            ": another thread's call kept " + "the connection busy for " +
                                            to_string(timeout));
      }
      connection_.busy_ = true;
    }
    ~Turn() {
      const std::lock_guard lock(connection_.mutex_);
      connection_.busy_ = false;
      connection_.idle_.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Connection& connection_;
  };

  // 0 or an errno: ETIMEDOUT when the deadline passed, ECONNRESET when the store closed the connection, EMSGSIZE when
  // it sends more than a store can.
  int open(const Address& address, Deadline deadline);
  int greet(Deadline deadline);
  int answer(Deadline deadline, std::string& bytes);
  int progress(Deadline deadline);
  int send_some();
  int receive_some();
  int refuse(const std::string& what);

  bool resolve();
  void require_possible(const Request& request) const;  // checks the limits and that the connection is alive
  Error lost(const Request& request) const;
  [[noreturn]] void fail(int error, const Request& request, Milliseconds timeout);
  void close();
  bool was_interrupted();

  // Protects what interrupt() and the calls that wait for their turn share with the call that has it.
  std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;
  bool interrupted_ = false;
  const std::string host_;
  const std::uint16_t port_;
  std::string cause_;  // why resolving or connecting failed last; later why the connection ended
  std::vector<Address> addresses_;
  Descriptor fd_;
  std::string out_;
  std::string in_;
  std::deque<Owed> owed_;
  std::string refused_;  // after EMSGSIZE: what the store sends, and why that cannot be
};

// ---- Connecting ----

void TcpStore::Connection::connect(Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  for (Milliseconds pause = kFirstRetry;; pause = std::min(2 * pause, kSlowestRetry)) {
    bool may_succeed = !resolve();  // a name may still appear in the DNS
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      // A silent address must leave some time for the next one.
      const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
      int error = open(addresses_[i], Clock::now() + left / static_cast<int>(addresses_.size() - i));
      if (error == 0) error = greet(deadline);
      if (error == 0) return cause_.clear();
      close();
      cause_ = reason_of(error);
      may_succeed = may_succeed || is_transient(error);
    }
    if (!may_succeed) throw Error(ErrorCode::System, name() + ": cannot connect: " + cause_);
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  throw Error(ErrorCode::Timeout, name() + ": no answer in " + to_string(timeout) + ": " + cause_ + kAdvice);
}

bool TcpStore::Connection::resolve() {
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

int TcpStore::Connection::open(const Address& address, Deadline deadline) {
  fd_ = Descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd_) return errno;
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd ready{fd_.get(), POLLOUT, 0};
  int count = 0;
  while ((count = ::poll(&ready, 1, until(deadline))) < 0 && errno == EINTR) {
  }
  if (count < 0) return errno;
  if (count == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error != 0 ? error : is_connected_to_itself(fd_.get()) ? ECONNREFUSED : 0;
}

// VALIDATE has no answer, so this also asks for the number of keys, which every server since 2.2 knows (PING came with
// 2.5). A server that is overrun may still close the connection here.
int TcpStore::Connection::greet(Deadline deadline) {
  append_validate(out_);
  append_request(out_, {.op = Op::GetNumKeys});
  owed_.emplace_back(Answered{AnswerShape::Number});
  std::string number;
  const int error = answer(deadline, number);
  if (error == 0 && read_integer(number) > kMostKeys) {
    throw Error(ErrorCode::System, name() + ": what answers there is not a store; is the port right?");
  }
  return error;
}

// ---- One request ----

void TcpStore::Connection::tell(const Request& request, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const Turn turn(*this, request, timeout, deadline);
  require_possible(request);
  append_request(out_, request);
  if (const int error = send_some(); error != 0) fail(error, request, timeout);
  while (!out_.empty()) {
    if (const int error = progress(deadline); error != 0) fail(error, request, timeout);
  }
}

std::string TcpStore::Connection::ask(const Request& request, Answered answered, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const Turn turn(*this, request, timeout, deadline);
  require_possible(request);
  append_request(out_, request);
  owed_.emplace_back(answered);
  std::string bytes;
  if (const int error = answer(deadline, bytes); error != 0) fail(error, request, timeout);
  return bytes;
}

bool TcpStore::Connection::wait(const Request& request, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const Turn turn(*this, request, timeout, deadline);
  require_possible(request);
  append_request(out_, request);
  owed_.emplace_back(Answered{AnswerShape::Byte});
  std::string bytes;
  int error = answer(deadline, bytes);
  if (error == 0) return true;
  if (error != ETIMEDOUT) fail(error, request, timeout);

  append_request(out_, {.op = Op::CancelWait});
  owed_.back() = Owed({AnswerShape::Cancelled});
  error = answer(Clock::now() + kCancelGrace, bytes);
  if (error != 0) fail(error, request, timeout);
  return bytes.front() == static_cast<char>(Answer::StopWaiting);  // the release was on its way
}

// Receives the answer to the latest request. Answers to earlier requests, whose callers have given up, are dropped.
int TcpStore::Connection::answer(Deadline deadline, std::string& bytes) {
  if (const int error = send_some(); error != 0) return error;
  while (true) {
    const std::uint64_t length = owed_.front().length(in_);
    if (length > kMaxAnswerBytes) {
      return refuse("the store announces an answer of " + std::to_string(length) + " bytes or more");
    }
    if (in_.size() < length) {
      if (const int error = progress(deadline); error != 0) return error;
      continue;
    }
    if (in_.size() == length) {
      bytes = std::exchange(in_, {});
    } else {
      bytes.assign(in_, 0, length);
      in_.erase(0, length);
    }
    owed_.pop_front();
    if (owed_.empty()) return 0;
  }
}

int TcpStore::Connection::progress(Deadline deadline) {
  pollfd ready{fd_.get(), static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  const int count = ::poll(&ready, 1, until(deadline));
  if (count < 0) return errno == EINTR ? 0 : errno;
  if (count == 0) return Clock::now() < deadline ? 0 : ETIMEDOUT;
  if ((ready.revents & POLLOUT) != 0) {
    if (const int error = send_some(); error != 0) return error;
  }
  return (ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? receive_some() : 0;
}

int TcpStore::Connection::send_some() {
  const auto sent = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
  out_.erase(0, static_cast<std::size_t>(sent));
  return 0;
}

int TcpStore::Connection::receive_some() {
  char bytes[kReceiveBytes];
  const auto size = ::recv(fd_.get(), bytes, sizeof bytes, 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
  if (size == 0) return ECONNRESET;
  if (in_.size() > kMaxAnswerBytes) return refuse("the store sends bytes that no request asked for");
  in_.append(bytes, static_cast<std::size_t>(size));
  return 0;
}

int TcpStore::Connection::refuse(const std::string& what) {
  refused_ = what + "; it may send " + std::to_string(kMaxAnswerBytes) + " (is another program at this port?)";
  return EMSGSIZE;
}

// ---- Failing ----

void TcpStore::Connection::require_possible(const Request& request) const {
  for (const std::string& key : request.keys) {
    if (key.size() > kMaxKeyBytes) {
      throw Error(ErrorCode::InvalidArgument, name() + ": a key may have " + std::to_string(kMaxKeyBytes - 1) +
                                                  " bytes, not " + std::to_string(key.size() - 1));
    }
  }
  for (const std::string& value : request.values) {
    if (value.size() > kMaxValueBytes) {
      throw Error(ErrorCode::InvalidArgument, name() + ": " + what_for(request) + ": a value may have " +
                                                  std::to_string(kMaxValueBytes) + " bytes, not " +
                                                  std::to_string(value.size()));
    }
  }
  if (request.keys.size() > kMaxKeysPerRequest) {
    throw Error(ErrorCode::InvalidArgument, name() + ": one call may name " + std::to_string(kMaxKeysPerRequest) +
                                                " keys, not " + std::to_string(request.keys.size()));
  }
  if (!fd_) throw lost(request);
}

Error TcpStore::Connection::lost(const Request& request) const {
  return Error(ErrorCode::System, name() + ": " + what_for(request) + ": " + cause_);
}

void TcpStore::Connection::fail(int error, const Request& request, Milliseconds timeout) {
  if (error == ETIMEDOUT) {
    throw Error(ErrorCode::Timeout,
                name() + ": no answer in " + to_string(timeout) + " to " + what_for(request) + kAdvice);
  }
  close();
  cause_ = was_interrupted()   ? "interrupted by this process"
           : error == EMSGSIZE ? refused_
                               : reason_of(error) + why_closed(request.op);
  throw lost(request);
}

std::string TcpStore::Connection::name() const { return "store " + endpoint(host_, port_); }

// The call that polls the socket sees its end. That call closes it, since another thread's new file could get the
// descriptor's number if it were closed here.
void TcpStore::Connection::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
}

bool TcpStore::Connection::was_interrupted() {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

void TcpStore::Connection::close() {
  {
    const std::lock_guard lock(mutex_);
    fd_.close();
  }
  out_.clear();
  in_.clear();
  owed_.clear();
}

std::string TcpStore::Connection::local_address() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char text[NI_MAXHOST];
  if (::getsockname(fd_.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    throw Error(ErrorCode::System, name() + ": cannot find this side's address: " + reason_of(errno));
  }
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view found = text;
  return std::string(found.starts_with(kMapped) && found.find('.') != found.npos ? found.substr(kMapped.size())
                                                                                 : found);
}

// ---- The public class ----

TcpStore::TcpStore(std::string host, std::uint16_t port, Milliseconds timeout)
    : Store(timeout), connection_(std::make_unique<Connection>(std::move(host), port)) {
  connection_->connect(timeout);
}

TcpStore::~TcpStore() = default;

std::string TcpStore::name() const { return connection_->name(); }

std::unique_ptr<Store> TcpStore::clone(Milliseconds timeout) const {
  return std::make_unique<TcpStore>(connection_->host(), connection_->port(), timeout);
}

const std::string& TcpStore::host() const { return connection_->host(); }
std::uint16_t TcpStore::port() const { return connection_->port(); }

void TcpStore::count_in() {
  connection_->ask({.op = Op::Add, .keys = {kWorkerCounter}, .number = 1}, {AnswerShape::Number}, timeout());
}

void TcpStore::set(std::string_view key, std::string_view value) {
  connection_->tell({.op = Op::Set, .keys = {on_wire(key)}, .values = {std::string(value)}}, timeout());
}

std::string TcpStore::get(std::string_view key, Milliseconds timeout) {
  return std::move(multi_get({std::string(key)}, timeout).front());
}

std::int64_t TcpStore::add(std::string_view key, std::int64_t delta) {
  const Request request{.op = Op::Add, .keys = {on_wire(key)}, .number = delta};
  return number_of(connection_->ask(request, {AnswerShape::Number}, timeout()));
}

bool TcpStore::check(const std::vector<std::string>& keys) {
  const std::string answer = connection_->ask({.op = Op::Check, .keys = on_wire(keys)}, {AnswerShape::Byte}, timeout());
  return answer.front() == static_cast<char>(Answer::Ready);
}

void TcpStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  if (connection_->wait({.op = Op::Wait, .keys = on_wire(keys)}, timeout)) return;
  throw not_set(name(), keys, timeout);
}

std::string TcpStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const Request request{
      .op = Op::CompareSet, .keys = {on_wire(key)}, .values = {std::string(expected), std::string(desired)}};
  return text_of(connection_->ask(request, {AnswerShape::Texts}, timeout()));
}

void TcpStore::append(std::string_view key, std::string_view value) {
  connection_->tell({.op = Op::Append, .keys = {on_wire(key)}, .values = {std::string(value)}}, timeout());
}

bool TcpStore::delete_key(std::string_view key) {
  return number_of(connection_->ask({.op = Op::DeleteKey, .keys = {on_wire(key)}}, {AnswerShape::Number}, timeout())) >
         0;
}

std::int64_t TcpStore::num_keys() {
  return number_of(connection_->ask({.op = Op::GetNumKeys}, {AnswerShape::Number}, timeout()));
}

std::vector<std::string> TcpStore::list_keys() {
  const std::string answer = connection_->ask({.op = Op::ListKeys}, {AnswerShape::Listed}, timeout());
  std::vector<std::string> keys;
  for_each_text(std::string_view(answer).substr(8), [&keys](std::string_view key) {
    if (key.starts_with('/')) keys.emplace_back(key.substr(1));  // leaves out the counter of workers
  });
  return keys;
}

std::vector<std::string> TcpStore::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  wait(keys, timeout);
  if (keys.empty()) return {};
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  const Request request{.op = keys.size() == 1 ? Op::Get : Op::MultiGet, .keys = on_wire(keys)};
  return texts_of(connection_->ask(request, {AnswerShape::Texts, keys.size()}, std::max(left, kCancelGrace)));
}

void TcpStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  require_pairs(name(), keys, values);
  connection_->tell({.op = Op::MultiSet, .keys = on_wire(keys), .values = values}, timeout());
}

// A push has no answer and a pop waits, so the first call asks for a length: only a server with queues answers.
void TcpStore::require_queues(std::string_view queue) {
  if (!has_queues_) queue_len(queue);
}

void TcpStore::queue_push(std::string_view queue, std::string_view value) {
  require_queues(queue);
  connection_->tell({.op = Op::QueuePush, .keys = {on_wire(queue)}, .values = {std::string(value)}}, timeout());
}

// Sends WAIT and then QUEUE_POP, which finds nothing if another client was quicker. A key of the queue's name also ends
// the WAIT, hence the pauses.
std::string TcpStore::queue_pop(std::string_view queue, Milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  require_queues(queue);
  for (Milliseconds pause = kFirstRetry;; pause = std::min(2 * pause, kSlowestRetry)) {
    const auto left = std::max(std::chrono::ceil<Milliseconds>(deadline - Clock::now()), Milliseconds::zero());
    const bool woken = connection_->wait({.op = Op::Wait, .keys = {on_wire(queue)}}, left);
    if (std::optional<std::string> value = queue_try_pop(queue)) return std::move(*value);
    if (!woken || Clock::now() + pause >= deadline) throw still_empty(name(), queue, timeout);
    std::this_thread::sleep_for(pause);
  }
}

std::optional<std::string> TcpStore::queue_try_pop(std::string_view queue) {
  const std::string answer =
      connection_->ask({.op = Op::QueuePop, .keys = {on_wire(queue)}}, {AnswerShape::Popped}, timeout());
  if (number_of(answer) == 0) return std::nullopt;
  return text_of(answer.substr(8));
}

std::int64_t TcpStore::queue_len(std::string_view queue) {
  const Request request{.op = Op::QueueLen, .keys = {on_wire(queue)}};
  const std::int64_t length = number_of(connection_->ask(request, {AnswerShape::Number}, timeout()));
  has_queues_ = true;
  return length;
}

void TcpStore::barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout) {
  if (connection_->wait({.op = Op::Barrier, .keys = {on_wire(key)}, .number = world_size}, timeout)) return;
  throw Error(ErrorCode::Timeout, name() + ": barrier \"" + std::string(key) + "\" of " + std::to_string(world_size) +
                                      " not complete within " + to_string(timeout) + " (are all workers running?)");
}

std::string TcpStore::local_address() const { return connection_->local_address(); }

void TcpStore::interrupt() { connection_->interrupt(); }

}  // namespace ddp::rendezvous
