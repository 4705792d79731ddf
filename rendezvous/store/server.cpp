// SPDX-License-Identifier: BSD-3-Clause
// Loop owns everything and runs on its own thread; a Session is one connection. In one turn the loop waits for
// readiness, then reads once from each ready connection, applies all requests that arrived whole, and sends their
// answers with one call.
//
// It uses plain epoll and not Asio, since ten thousand workers start through this loop: a connection costs a Session of
// some 110 bytes, and a request little more than its system calls (see scripts/benchmarks/store).
#include "rendezvous/store/server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>

#include "rendezvous/base/check.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/rare_log.hpp"
#include "rendezvous/base/thread.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/connection_owner.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/net/peer_user.hpp"
#include "rendezvous/net/silence.hpp"

namespace ddp::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 * 1024;        // at most, from one connection in one turn
constexpr std::size_t kWriteBytes = 1024 * 1024;     // at most, to one connection in one turn
constexpr std::size_t kKeepBytes = 2 * 1024 * 1024;  // capacity that the buffer for answers keeps after a larger one
constexpr int kEventsPerTurn = 256;
constexpr int kAcceptsPerTurn = 256;                     // then connections that are open get a turn
constexpr int kBacklogAtMost = 64 * 1024;                // connections that may wait to be accepted
constexpr std::size_t kCommandBytes = sizeof(void*);     // in the pipe
constexpr std::chrono::milliseconds kAcceptBackOff{20};  // while there is no file descriptor
constexpr std::chrono::milliseconds kAskOwnerAgain{200};
constexpr std::chrono::seconds kFullForLong{3};   // a start of many workers has few descriptors for a moment
constexpr std::chrono::seconds kAnswerLimit{10};  // the thread answers in milliseconds; else it is stuck

// Epoll events carry a connection's id; the command pipe and the listeners have numbers that no connection has.
constexpr ConnectionId kNobody = 0;  // stands for the caller of set(), and for a closed connection
constexpr std::uint64_t kCommands = 0;
constexpr std::uint32_t kListener = 1;  // in the place of a serial
constexpr std::uint32_t kFirstSerial = 2;

// An id is a serial number and the descriptor, so that a late event or timer never meets the descriptor's next owner.
constexpr ConnectionId make_id(std::uint32_t serial, int fd) {
  return std::uint64_t{serial} << 32 | static_cast<std::uint32_t>(fd);
}
constexpr int fd_of(ConnectionId id) { return static_cast<int>(id & 0xffffffffU); }

std::uint64_t random_seed() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

// Returns whether something has come that was not read yet.
bool has_bytes(int fd) {
  char first = 0;
  return ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

// What a connection holds back: answers that its client does not read yet, and requests that wait until it does.
struct Backlog {
  std::string out;  // answers; those before `sent` have left
  std::size_t sent = 0;
  std::string unparsed;
  std::string awaits_owner;  // the connection's name, while its node is asked whose it is; else empty
  Clock::time_point asked;   // since then

  std::size_t unsent() const { return out.size() - sent; }
  std::size_t held() const { return sizeof *this + out.capacity() + unparsed.capacity() + awaits_owner.capacity(); }
};

struct Session {
  Descriptor socket;  // none once it is closed
  std::uint32_t serial = 0;
  Decoder decoder;
  std::unique_ptr<Backlog> backlog;  // null while nothing is held back
  std::size_t held = 0;              // its part of Loop::held_
  std::uint32_t events = EPOLLIN;    // what epoll waits for
  bool identified = false;           // its first bytes have come, and it is a client of the store
  bool timed = false;                // its first bytes have a deadline
  bool is_own_users = false;         // its process is on this machine and is this process's user's, or root's
  bool is_silent = true;             // no whole request has come
  bool is_elsewhere = false;         // its process is on another machine
  in6_addr peer = {};                // its address; IPv4 is v4-mapped
  Clock::time_point accepted;

  bool is_open() const { return static_cast<bool>(socket); }
  ConnectionId id() const { return is_open() ? make_id(serial, socket.get()) : kNobody; }
  std::size_t unsent() const { return backlog ? backlog->unsent() : 0; }
  bool awaits_owner() const { return backlog && !backlog->awaits_owner.empty(); }
  bool has_unparsed() const { return backlog && !backlog->unparsed.empty(); }
  Backlog& make_backlog() {
    if (!backlog) backlog = std::make_unique<Backlog>();
    return *backlog;
  }
};

}  // namespace

class StoreServer::Loop {
 public:
  Loop(std::vector<Descriptor> listeners, Options options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Run f on the loop's thread, in the order of the calls; any thread may call them. ask() waits and returns the
  // result.
  void post(std::function<void(Loop&)> f);
  template <typename Question>
  auto ask(Question question);

  // On the loop's thread.
  void set(const std::string& key, const std::string& value);
  void close_everything();
  void admit_only(const std::vector<std::string>& numeric_addresses);
  void take_owner(const std::string& answer);
  StoreStatistics statistics();

 private:
  void run();
  void carry_out_commands();
  [[nodiscard]] bool watch(int operation, int fd, std::uint32_t events, std::uint64_t who) const;
  Session* find(ConnectionId id) const;

  enum class Origin { OwnUser, Elsewhere, Unknown, Refused };
  Origin origin_of(int fd, in6_addr& peer);
  void refuse_user(int fd, const PeerUsers::Answer& user);
  void accept(int listener);
  bool make_room();
  void watch_listeners(std::uint32_t events) const;
  void pause_accepting();
  bool has_few_descriptors();
  bool add_session(Descriptor socket, Origin origin, const in6_addr& peer);
  bool identify(Session& session, std::string_view first_bytes);
  void ask_owner(Session& session);
  bool begins_as_agent_link(int fd) const;
  bool may_come_in(int fd) const;
  void hand_over(Session& session, std::string_view first_bytes);

  void read(Session& session);
  void feed(Session& session, std::string_view input);
  std::string apply_all(Session& session, std::string_view& input);
  void set_deadlines(Session& session);
  void on_deadline(Session& session);
  int run_timers();

  void deliver_to_others();
  void send(Session& session, std::string& bytes);
  void write_more(Session& session);
  std::size_t send_some(Session& session, std::string_view bytes);
  void settle(Session& session);
  std::size_t room() const { return options_.max_bytes - std::min(held_, options_.max_bytes); }
  void drop(Session& session, const std::string& reason);
  void close(Session& session);
  Descriptor release(Session& session);

  Options options_;
  std::vector<Descriptor> listeners_;
  Descriptor epoll_;
  Pipe commands_;
  int first_reserved_ = 0;  // this descriptor and those above are for the rest of the process
  int highest_accepted_ = 0;

  std::optional<std::set<std::string>> admitted_;   // numeric addresses; none: all are admitted
  std::vector<std::unique_ptr<Session>> sessions_;  // by descriptor
  std::map<std::string, ConnectionId> awaiting_;    // by Backlog::awaits_owner
  std::vector<std::unique_ptr<Session>> closed_;    // in this turn; callers may still hold references to them
  std::uint32_t last_serial_ = 0;
  StoreCore core_;
  Replies replies_;
  std::multimap<Clock::time_point, ConnectionId> deadlines_;
  std::optional<Clock::time_point> accept_again_;  // by then there may be file descriptors again
  std::optional<Clock::time_point> full_since_;    // since then new connections have to wait
  std::size_t held_ = 0;                           // bytes of incomplete requests and backlogs
  StoreStatistics statistics_;
  PeerUsers peer_users_;
  bool knows_users_ = true;  // false: PeerUsers said that it cannot tell
  RareLog log_;
  RareLog users_log_;  // apart from log_, so that lines about nonsense do not hide it
  RareLog room_log_;
  std::array<char, kReadBytes> input_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

StoreServer::Loop::Loop(std::vector<Descriptor> listeners, Options options)
    : options_(std::move(options)),
      listeners_(std::move(listeners)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      core_(options_.max_bytes, random_seed()),
      log_(options_.log),
      users_log_(options_.log),
      room_log_(options_.log) {
  if (!epoll_) system_error("store server: cannot make an epoll");
  commands_ = make_pipe("to the store's thread");
  first_reserved_ = static_cast<int>(std::min<rlim_t>(servers_files(), std::numeric_limits<int>::max()));

  if (!watch(EPOLL_CTL_ADD, commands_.read_end.get(), EPOLLIN, kCommands))
    system_error("store server: cannot watch a pipe");
  for (const Descriptor& listener : listeners_) {
    const int on = 1;  // the connections it accepts inherit it
    ::setsockopt(listener.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!watch(EPOLL_CTL_ADD, listener.get(), EPOLLIN, make_id(kListener, listener.get())))
      system_error("store server: cannot watch a socket");
  }
  thread_ = start_thread("ddprun-store", [this] { run(); });
}

StoreServer::Loop::~Loop() {
  post([](Loop& loop) { loop.stopping_ = true; });
  thread_.join();
}

void StoreServer::Loop::run() {
  std::array<epoll_event, kEventsPerTurn> events;
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsPerTurn, run_timers());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const ConnectionId id = event.data.u64;
      if (id == kCommands) {
        carry_out_commands();
      } else if (id >> 32 == kListener) {
        accept(fd_of(id));
      } else if (Session* session = find(id)) {
        if ((event.events & EPOLLOUT) != 0) {
          write_more(*session);
        } else {
          read(*session);
        }
      }
    }
    closed_.clear();
  }
}

// Returns false if the kernel has no memory or no more watches for this user, which can happen to EPOLL_CTL_ADD only.
bool StoreServer::Loop::watch(int operation, int fd, std::uint32_t events, std::uint64_t who) const {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = who;
  const bool done = ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  DDP_CHECK(done || operation == EPOLL_CTL_ADD, operation, fd, errno);
  return done;
}

Session* StoreServer::Loop::find(ConnectionId id) const {
  const auto index = static_cast<std::size_t>(fd_of(id));
  if (index >= sessions_.size() || !sessions_[index] || sessions_[index]->id() != id) return nullptr;
  return sessions_[index].get();
}

// ---- From other threads ----

// Writes a pointer to the function into a pipe, which takes no lock and keeps their order.
void StoreServer::Loop::post(std::function<void(Loop&)> f) {
  auto* command = new std::function<void(Loop&)>(std::move(f));
  while (::write(commands_.write_end.get(), &command, kCommandBytes) < 0) DDP_CHECK(errno == EINTR, errno);
}

void StoreServer::Loop::carry_out_commands() {
  std::array<std::function<void(Loop&)>*, 64> commands = {};
  const auto size = ::read(commands_.read_end.get(), commands.data(), commands.size() * kCommandBytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(size, ssize_t{0})) / kCommandBytes; ++i) {
    const std::unique_ptr<std::function<void(Loop&)>> command(commands[i]);
    (*command)(*this);
  }
}

template <typename Question>
auto StoreServer::Loop::ask(Question question) {
  const auto task =
      std::make_shared<std::packaged_task<std::invoke_result_t<Question, Loop&>(Loop&)>>(std::move(question));
  auto answer = task->get_future();
  post([task](Loop& loop) { (*task)(loop); });
  if (answer.wait_for(kAnswerLimit) != std::future_status::ready) {
    throw Error(ErrorCode::System, "store server: its thread did not answer in 10 s; is this machine out of memory?");
  }
  return answer.get();
}

void StoreServer::Loop::set(const std::string& key, const std::string& value) {
  std::string fields;
  append_bytes(fields, key);
  append_bytes(fields, value);
  replies_.from = kNobody;
  replies_.room = room();
  core_.apply({Op::Set, Generation::Modern, fields}, replies_);
  replies_.close.clear();  // if the store is full, this value is lost too
  deliver_to_others();
}

StoreStatistics StoreServer::Loop::statistics() {
  StoreStatistics now = statistics_;
  now.held_bytes = held_;
  now.size = core_.size();
  return now;
}

// ---- Accepting ----

void StoreServer::Loop::accept(int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (has_few_descriptors() && !make_room()) return pause_accepting();
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      in6_addr peer = {};
      ++statistics_.accepted;
      const Origin origin = origin_of(socket.get(), peer);
      if (origin == Origin::Refused || add_session(std::move(socket), origin, peer)) continue;
    } else if (errno == EINTR || errno == ECONNABORTED) {
      continue;
    } else if (errno == EAGAIN) {
      return;
    } else if ((errno == EMFILE || errno == ENFILE) && make_room()) {
      continue;
    }
    return pause_accepting();  // EMFILE, ENFILE, ENOMEM: these pass
  }
}

// Decides whether the user whose process has connected may. It is asked now, since the answer counts only while the
// process has its end open, and so that strangers of this machine hold nothing.
StoreServer::Loop::Origin StoreServer::Loop::origin_of(int fd, in6_addr& peer) {
  const std::optional<ConnectionEnds> ends = ends_of(fd);
  if (ends) peer = ends->peer.address;
  if (options_.any_user) return Origin::Unknown;
  const PeerUsers::Answer user = ends ? peer_users_.of(fd, *ends) : PeerUsers::Gone{};
  if (const auto* known = std::get_if<PeerUsers::Known>(&user)) {
    if (known->uid == ::geteuid() || known->uid == 0) return Origin::OwnUser;
  } else if (std::holds_alternative<PeerUsers::Elsewhere>(user)) {
    ++statistics_.by_address;
    return Origin::Elsewhere;
  } else if (std::holds_alternative<PeerUsers::CannotTell>(user)) {
    ++statistics_.by_address;
    if (std::exchange(knows_users_, false) && options_.log) {
      options_.log("store: cannot tell which user of this machine connects: " + peer_users_.why_not() +
                   "; all users of this machine are admitted");
    }
    return Origin::Unknown;
  }
  // A process that looked whether the port is open, and went, has nothing to be refused.
  if (std::holds_alternative<PeerUsers::Known>(user) || has_bytes(fd)) refuse_user(fd, user);
  return Origin::Refused;
}

void StoreServer::Loop::refuse_user(int fd, const PeerUsers::Answer& user) {
  ++statistics_.dropped;
  ++statistics_.other_users;
  users_log_.write([&] {
    const std::string who = "store: refused " + peer_of(fd) + ": ";
    const auto* known = std::get_if<PeerUsers::Known>(&user);
    if (known == nullptr) return who + "it is on this machine, but its process was gone before its user could be seen";
    const std::string process = process_with_socket({std::to_string(known->inode)}, known->uid);
    const uid_t own = ::geteuid();
    return who + "its process belongs to " + user_name(known->uid) + (process.empty() ? "" : ", " + process) +
           ", and of this machine's users only " + (own == 0 ? "" : user_name(own) + " and ") + "root may connect" +
           (options_.other_users_hint.empty() ? "" : "; " + options_.other_users_hint);
  });
}

// The kernel gives out the lowest free descriptor. If that one is above the mark, all below it are taken: by
// connections, agents' links, or other files of this process.
bool StoreServer::Loop::has_few_descriptors() {
  if (highest_accepted_ < first_reserved_) return false;
  const Descriptor lowest_free(::fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0));
  return !lowest_free || lowest_free.get() >= first_reserved_;
}

// Closes silent connections. Returns false if there are none that may be closed; then new ones have to wait.
bool StoreServer::Loop::make_room() {
  const Clock::time_point now = Clock::now();
  std::vector<OpenConnection> open;
  std::size_t silent = 0;
  for (const auto& session : sessions_) {
    if (!session) continue;
    OpenConnection& one = open.emplace_back();
    one.id = session->id();
    one.is_silent = session->is_silent && !has_bytes(session->socket.get());
    one.share = share_of(session->peer);
    if (!one.is_silent) continue;
    ++silent;
    one.is_new = now - session->accepted < options_.preface_limit;
    one.standing = session->is_own_users                ? Standing::OwnUser
                   : !admitted_                         ? Standing::Anybody
                   : may_come_in(session->socket.get()) ? Standing::Member
                                                        : Standing::Stranger;
  }
  const std::vector<std::uint64_t> chosen = choose_silent(std::move(open));
  for (const ConnectionId id : chosen) {
    ++statistics_.silent_closed;
    drop(*find(id), "it was silent, and its place was needed: " + std::to_string(silent) + " of " +
                        std::to_string(statistics_.open) + " connections are silent");
  }
  if (chosen.empty() && !full_since_) full_since_ = now;
  if (chosen.empty() && now - *full_since_ >= kFullForLong) {
    room_log_.write("store: new connections have to wait, nodes and workers among them: the limit of open files (" +
                    std::to_string(file_limit()) + ") leaves no place for more than " +
                    std::to_string(statistics_.open) + " connections, " + std::to_string(silent) +
                    " of which are silent; raise it (ulimit -n)");
  }
  return !chosen.empty() && !has_few_descriptors();
}

void StoreServer::Loop::watch_listeners(std::uint32_t events) const {
  for (const Descriptor& listener : listeners_) {
    std::ignore = watch(EPOLL_CTL_MOD, listener.get(), events, make_id(kListener, listener.get()));
  }
}

void StoreServer::Loop::pause_accepting() {
  accept_again_ = Clock::now() + kAcceptBackOff;
  watch_listeners(0);
}

bool StoreServer::Loop::add_session(Descriptor socket, Origin origin, const in6_addr& peer) {
  last_serial_ = std::max(last_serial_ + 1, kFirstSerial);  // also when it has wrapped around
  const int fd = socket.get();
  if (!watch(EPOLL_CTL_ADD, fd, EPOLLIN, make_id(last_serial_, fd))) return false;
  const auto index = static_cast<std::size_t>(fd);
  if (index >= sessions_.size()) sessions_.resize(index + 1);
  sessions_[index] = std::make_unique<Session>();
  sessions_[index]->socket = std::move(socket);
  sessions_[index]->serial = last_serial_;
  sessions_[index]->is_own_users = origin == Origin::OwnUser;
  sessions_[index]->is_elsewhere = origin == Origin::Elsewhere;
  sessions_[index]->peer = peer;
  sessions_[index]->accepted = Clock::now();
  ++statistics_.open;
  highest_accepted_ = std::max(highest_accepted_, fd);
  full_since_.reset();
  return true;
}

// Decides by the first bytes what the connection is. Returns false if it is no client of this store, or not yet: an
// agent's link, which is handed over, a stranger, which is dropped, or a client whose node is asked whose it is.
bool StoreServer::Loop::identify(Session& session, std::string_view first_bytes) {
  if (options_.on_agent_link && first_bytes.front() == kAgentLinkByte) {
    hand_over(session, first_bytes);
    return false;
  }
  if (!may_come_in(session.socket.get())) {
    const std::string address = peer_address(session.socket.get());
    drop(session, (address.empty() ? "it" : address) + " is not an address of this round's nodes");
    return false;
  }
  session.identified = true;
  if (options_.clients) ++*options_.clients;
  const auto ends = ends_of(session.socket.get());
  if (!admitted_ || !session.is_elsewhere || !options_.ask_owner || !ends) return true;
  Backlog& backlog = session.make_backlog();
  backlog.unparsed = first_bytes;
  backlog.awaits_owner = connection_name(*ends);
  backlog.asked = Clock::now();
  awaiting_[backlog.awaits_owner] = session.id();
  ask_owner(session);
  settle(session);
  return false;
}

// ---- Whose a connection from another node is ----

void StoreServer::Loop::ask_owner(Session& session) {
  const Clock::time_point now = Clock::now();
  if (now - session.backlog->asked >= kOwnerLimit) return drop(session, "its node does not say whose it is");
  deadlines_.emplace(now + kAskOwnerAgain, session.id());
  options_.ask_owner(session.backlog->awaits_owner);
}

void StoreServer::Loop::take_owner(const std::string& answer) {
  using Owner = OwnerAnswer::Owner;
  const auto read = read_owner_answer(answer);
  const auto waits = read ? awaiting_.find(read->connection) : awaiting_.end();
  Session* const session = waits != awaiting_.end() ? find(waits->second) : nullptr;
  if (session == nullptr) return;
  if (!is_alive(session->socket.get())) return close(*session);  // the answer may be about another one's connection
  if (read->owner == Owner::Own || read->owner == Owner::Unknown) {
    awaiting_.erase(waits);
    session->backlog->awaits_owner.clear();
    const std::string first_bytes = std::exchange(session->backlog->unparsed, {});
    return feed(*session, first_bytes);
  }
  ++statistics_.dropped;
  ++statistics_.other_users;
  users_log_.write([&] {
    return "store: refused " + peer_of(session->socket.get()) + ": as its node says, " +
           (read->owner == Owner::None ? "none of its processes has this connection"
                                       : "its process belongs to " + read->user) +
           ", and of a node's users only its ddprun's and root may connect" +
           (options_.other_users_hint.empty() ? "" : "; " + options_.other_users_hint);
  });
  close(*session);
}

bool StoreServer::Loop::may_come_in(int fd) const {
  if (!admitted_) return true;
  const std::string address = peer_address(fd);
  if (admitted_->contains(address)) return true;
  return !address.empty() && admitted_->contains("127.0.0.1") && address == local_address(fd);
}

void StoreServer::Loop::hand_over(Session& session, std::string_view first_bytes) {
  std::ignore = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.socket.get(), nullptr);
  ++statistics_.agent_links;
  options_.on_agent_link(release(session), std::string(first_bytes));
}

void StoreServer::Loop::admit_only(const std::vector<std::string>& numeric_addresses) {
  admitted_.emplace();
  for (const std::string& text : numeric_addresses) {
    if (std::string address = numeric_address(text); !address.empty()) admitted_->insert(std::move(address));
  }
}

// ---- Input ----

void StoreServer::Loop::read(Session& session) {
  if (session.awaits_owner()) return close(session);  // only its end is heard now
  const auto size = ::recv(session.socket.get(), input_.data(), input_.size(), 0);
  if (size > 0) {
    statistics_.bytes_in += static_cast<std::uint64_t>(size);
    const std::string_view input(input_.data(), static_cast<std::size_t>(size));
    if (session.identified || identify(session, input)) feed(session, input);
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
    close(session);
  }
}

// Applies the requests that came as long as the client reads its answers. The rest waits until the socket takes output.
void StoreServer::Loop::feed(Session& session, std::string_view input) {
  replies_.from = session.id();
  replies_.room = room();
  const std::string why_not = apply_all(session, input);
  send(session, replies_.answer);
  deliver_to_others();
  if (!session.is_open()) return;
  if (!why_not.empty()) return drop(session, why_not);
  if (!input.empty()) session.make_backlog().unparsed = input;
  set_deadlines(session);
  settle(session);
}

// Applies requests from the front of `input`. Returns why this client must go, or "" if it may stay.
std::string StoreServer::Loop::apply_all(Session& session, std::string_view& input) {
  while (session.unsent() + replies_.answer.size() <= kUnsentLimit) {
    const Decoded decoded = session.decoder.decode(input);
    if (std::holds_alternative<NeedMore>(decoded)) break;
    if (const auto* malformed = std::get_if<Malformed>(&decoded)) return malformed->why;
    const auto& request = std::get<RequestView>(decoded);
    session.is_silent = false;
    ++statistics_.requests[request.op == Op::WatchKey ? 0 : static_cast<std::size_t>(request.op)];
    core_.apply(request, replies_);
    if (!replies_.close.empty()) return std::exchange(replies_.close, {});
  }
  return {};
}

void StoreServer::Loop::set_deadlines(Session& session) {
  if (session.decoder.undecided()) {
    deadlines_.emplace(Clock::now() + kUndecidedGrace, session.id());
  } else if (!session.timed && session.decoder.generation() == Generation::Unknown) {
    session.timed = true;
    deadlines_.emplace(Clock::now() + options_.preface_limit, session.id());
  }
}

void StoreServer::Loop::on_deadline(Session& session) {
  if (session.awaits_owner()) return ask_owner(session);
  if (session.decoder.undecided()) {
    session.is_silent = false;
    replies_.from = session.id();
    replies_.room = room();
    core_.apply(session.decoder.settle(), replies_);
    send(session, replies_.answer);
    deliver_to_others();
    if (session.is_open()) settle(session);
  } else if (session.decoder.generation() == Generation::Unknown) {
    drop(session, "only the beginning of a first request");
  }
}

// Runs what is due. Returns how long epoll may sleep, in milliseconds; -1: until something happens.
int StoreServer::Loop::run_timers() {
  if (deadlines_.empty() && !accept_again_) return -1;
  const Clock::time_point now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ConnectionId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    if (Session* session = find(id)) on_deadline(*session);
  }
  if (accept_again_ && *accept_again_ <= now) {
    accept_again_.reset();
    watch_listeners(EPOLLIN);
  }
  Clock::time_point next = accept_again_.value_or(Clock::time_point::max());
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (next == Clock::time_point::max()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
}

// ---- Output ----

void StoreServer::Loop::deliver_to_others() {
  for (Replies::Send& other : replies_.others) {
    Session* session = find(other.to);
    if (session == nullptr) continue;  // it was closed in this turn
    send(*session, other.bytes);
    if (session->is_open()) settle(*session);
  }
  replies_.others.clear();
  replies_.pushed = 0;
  for (const ConnectionId watcher : std::exchange(replies_.overrun, {})) {
    if (Session* session = find(watcher)) drop(*session, "no room for what its watched key has become");
  }
}

// Sends all bytes, now or as the client reads them, and leaves `bytes` empty.
void StoreServer::Loop::send(Session& session, std::string& bytes) {
  if (bytes.empty()) return;
  if (session.unsent() + bytes.size() > kUnsentHardLimit) {
    drop(session, "does not read what it is sent");
  } else if (session.unsent() > 0) {
    session.backlog->out += bytes;
  } else if (const std::size_t sent = send_some(session, bytes); sent < bytes.size() && session.is_open()) {
    Backlog& backlog = session.make_backlog();
    backlog.out = std::move(bytes);
    backlog.sent = sent;
  }
  bytes.clear();
  if (bytes.capacity() > kKeepBytes) bytes.shrink_to_fit();
}

// Goes on where the connection stopped: the socket takes output again, or requests are left.
void StoreServer::Loop::write_more(Session& session) {
  if (session.unsent() > 0) {
    Backlog& backlog = *session.backlog;
    const std::size_t sent = send_some(session, std::string_view(backlog.out).substr(backlog.sent));
    if (!session.is_open()) return;
    backlog.sent += sent;
    if (backlog.sent > backlog.out.size() / 2) backlog.out.erase(0, std::exchange(backlog.sent, 0));
  }
  if (session.has_unparsed() && session.unsent() <= kUnsentLimit) {
    const std::string unparsed = std::exchange(session.backlog->unparsed, {});
    return feed(session, unparsed);
  }
  settle(session);
}

// Returns how many bytes the socket took. An error closes the connection.
std::size_t StoreServer::Loop::send_some(Session& session, std::string_view bytes) {
  const auto sent = ::send(session.socket.get(), bytes.data(), std::min(bytes.size(), kWriteBytes), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) close(session);
  const std::size_t taken = sent > 0 ? static_cast<std::size_t>(sent) : 0;
  statistics_.bytes_out += taken;
  return taken;
}

// Called after every change: updates what the connection holds and what epoll waits for.
void StoreServer::Loop::settle(Session& session) {
  const bool has_output = session.unsent() > 0 || session.has_unparsed();
  if (!has_output) session.backlog.reset();
  const std::size_t held = session.decoder.held() + (session.backlog ? session.backlog->held() : 0);
  held_ = held_ + held - std::exchange(session.held, held);
  if (held_ > options_.max_bytes && held > 0)
    return drop(session, "no room for more unfinished requests and unread answers");

  const bool may_read = !session.has_unparsed() && session.unsent() <= kUnsentLimit;
  const std::uint32_t events = session.awaits_owner() ? 0U : (may_read ? EPOLLIN : 0U) | (has_output ? EPOLLOUT : 0U);
  if (std::exchange(session.events, events) != events) {
    std::ignore = watch(EPOLL_CTL_MOD, session.socket.get(), events, session.id());
  }
}

// ---- Ends ----

void StoreServer::Loop::drop(Session& session, const std::string& reason) {
  ++statistics_.dropped;
  log_.write("store: closed " + peer_of(session.socket.get()) + ": " + reason);
  close(session);
}

void StoreServer::Loop::close(Session& session) { release(session).close(); }

// Forgets the connection and what it held back, and returns its socket.
Descriptor StoreServer::Loop::release(Session& session) {
  core_.disconnected(session.id());
  if (options_.clients && session.identified) --*options_.clients;
  if (session.awaits_owner()) awaiting_.erase(session.backlog->awaits_owner);
  session.backlog.reset();
  session.decoder = {};
  held_ -= session.held;
  --statistics_.open;
  Descriptor socket = std::move(session.socket);
  closed_.push_back(std::move(sessions_[static_cast<std::size_t>(socket.get())]));
  return socket;
}

void StoreServer::Loop::close_everything() {
  core_.reset();
  for (const auto& session : sessions_) {
    if (!session) continue;
    if (!session->identified && begins_as_agent_link(session->socket.get())) {
      hand_over(*session, "");
    } else {
      close(*session);
    }
  }
  deadlines_.clear();
  for (const Descriptor& listener : listeners_) {  // connections not accepted yet belong to the old round as well
    for (int i = 0; i < kBacklogAtMost; ++i) {
      Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      if (!begins_as_agent_link(socket.get())) continue;
      ++statistics_.accepted;
      if (in6_addr peer = {}; origin_of(socket.get(), peer) == Origin::Refused) continue;
      ++statistics_.agent_links;
      options_.on_agent_link(std::move(socket), "");
    }
  }
}

// Decides by the first byte, which is left to be read. False if none has come yet.
bool StoreServer::Loop::begins_as_agent_link(int fd) const {
  char first = 0;
  return options_.on_agent_link && ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == kAgentLinkByte;
}

// ---- The public class ----

StoreServer::StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port, Options options)
    : StoreServer(listen_on(numeric_addresses, port), std::move(options)) {}

StoreServer::StoreServer(Listeners listeners, Options options)
    : port_(listeners.port), loop_(std::make_unique<Loop>(std::move(listeners.sockets), std::move(options))) {}

StoreServer::~StoreServer() = default;

void StoreServer::reset() {
  loop_->ask([](Loop& loop) { loop.close_everything(); });
}
void StoreServer::admit_only(const std::vector<std::string>& numeric_addresses) {
  loop_->ask([numeric_addresses](Loop& loop) { loop.admit_only(numeric_addresses); });
}
void StoreServer::take_owner(const std::string& answer) {
  loop_->post([answer](Loop& loop) { loop.take_owner(answer); });
}
void StoreServer::set(const std::string& key, const std::string& value) {
  loop_->post([key, value](Loop& loop) { loop.set(key, value); });
}
StoreStatistics StoreServer::statistics() const {
  return loop_->ask([](Loop& loop) { return loop.statistics(); });
}

}  // namespace ddp::rendezvous
