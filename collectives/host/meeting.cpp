// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/meeting.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/backend_error.hpp"
#include "collectives/host/failure.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::collectives {
namespace {

using rendezvous::Descriptor;
using rendezvous::DescriptorMessage;
using rendezvous::kMostDescriptors;
using rendezvous::receive_with_descriptors;
using rendezvous::send_with_descriptors;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kInvitation[] = "segment";  // key in the store: rank 0's socket and nonce
constexpr char kApart[] = "apart";         // key in the store: why a rank cannot share memory; ends the meeting
constexpr char kWelcome[] = "welcome";
// Interval between looks into the store while others are awaited: a call that libddp interrupts ends the meeting.
constexpr milliseconds kBetweenLooks{100};
constexpr std::size_t kMostStrangers = 64;  // connections that have not said hello yet

std::string system_error(int error) { return std::strerror(error); }

// The store with a deadline for each call.
class Notes {
 public:
  Notes(const ddp_backend_store& store, Clock::time_point deadline) : store_(store), deadline_(deadline) {}

  void set(const char* key, const std::string& value) const {
    BackendError error;
    if (store_.set(store_.context, key, value.data(), value.size(), &error) != 0)
      throw Failure(DDP_BACKEND_ERROR, error.text);
  }
  std::string get(const char* key) const {
    std::string value;
    if (!get_within(key, time_left(), value)) throw Failure(DDP_BACKEND_TIMEOUT, "rank 0 did not come in time");
    return value;
  }
  // Throws if a rank has found that it cannot share memory, or if libddp has given up on the group.
  void look() const {
    std::string why;
    if (get_within(kApart, milliseconds(1), why)) throw Failure(DDP_BACKEND_ERROR, why);
    if (Clock::now() >= deadline_) throw Failure(DDP_BACKEND_TIMEOUT, "not all ranks came in time");
  }
  milliseconds time_left() const {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()), milliseconds(1));
  }

 private:
  bool get_within(const char* key, milliseconds timeout, std::string& value) const {
    const auto deliver = [](void* sink, const void* bytes, std::size_t size) {
      static_cast<std::string*>(sink)->assign(static_cast<const char*>(bytes), size);
    };
    BackendError error;
    if (store_.get(store_.context, key, timeout.count(), &value, deliver, &error) == 0) return true;
    if (std::string_view(error.text).starts_with("timed out")) return false;
    throw Failure(DDP_BACKEND_ERROR, error.text);
  }

  ddp_backend_store store_;
  Clock::time_point deadline_;
};

std::string random_hex(std::size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw Failure(DDP_BACKEND_ERROR, "getrandom: " + system_error(errno));
  std::string text;
  for (const char c : random) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

sockaddr_un abstract_address(const std::string& name, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool is_same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// A descriptor that shows when this process ends, in `shown`; `kept` is to stay open here.
struct Lifeline {
  Descriptor shown;
  Descriptor kept;
};

Lifeline make_lifeline() {
  Lifeline lifeline;
  lifeline.shown = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (lifeline.shown) return lifeline;
  // Before Linux 5.3: the end of a pipe, which a child of this process that runs no other program keeps open, too.
  auto pipe = rendezvous::try_pipe();
  if (!pipe) throw Failure(DDP_BACKEND_ERROR, "a descriptor for this process's life: " + system_error(errno));
  lifeline.shown = std::move(pipe->read_end);
  lifeline.kept = std::move(pipe->write_end);
  return lifeline;
}

// Sends as soon as the socket takes it. The kernel limits how many descriptors a user has under way (ETOOMANYREFS).
void send_soon(int socket, const std::string& text, const std::vector<int>& descriptors, const Notes& notes) {
  while (!send_with_descriptors(socket, text, descriptors)) {
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
      if (notes.time_left() <= milliseconds(1)) notes.look();
      poll(nullptr, 0, 1);
    } else if (errno != EINTR) {
      throw Failure(DDP_BACKEND_PEER_LOST, "passing the segment: " + system_error(errno));
    }
  }
}

// Rank 0's side: who has said hello.
class Reception {
 public:
  Reception(std::uint32_t ranks, std::string nonce) : nonce_(std::move(nonce)), sockets_(ranks), lifelines_(ranks) {
    name_ = "ddp-" + random_hex(16);
    listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(name_, &length);
    if (!listener_ || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        listen(listener_.get(), static_cast<int>(ranks) + 16) != 0) {
      throw Failure(DDP_BACKEND_ERROR, "a Unix socket to pass the shared memory: " + system_error(errno));
    }
  }

  const std::string& name() const { return name_; }

  void wait_for_all(const Notes& notes) {
    while (arrived_ + 1 < sockets_.size()) {
      std::vector<pollfd> events = {{listener_.get(), POLLIN, 0}};
      for (const Descriptor& stranger : strangers_) events.push_back({stranger.get(), POLLIN, 0});
      const int ready = poll(events.data(), events.size(), static_cast<int>(kBetweenLooks.count()));
      if (ready <= 0) {
        notes.look();
        continue;
      }
      for (std::size_t i = events.size(); i-- > 1;) {
        if (events[i].revents != 0) hear(i - 1);
      }
      if (events[0].revents != 0) accept_one();
    }
  }

  void welcome_all(const Segment& segment, const Notes& notes) const {
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
      const int socket = sockets_[rank].get();
      send_soon(socket, kWelcome, {segment.descriptor()}, notes);
      for (std::size_t first = 0; first < lifelines_.size(); first += kMostDescriptors) {
        std::vector<int> some;
        const std::size_t end = std::min(first + kMostDescriptors, lifelines_.size());
        for (std::size_t r = first; r < end; ++r) some.push_back(lifelines_[r].get());
        send_soon(socket, kWelcome, some, notes);
      }
    }
  }

  std::vector<Descriptor>& lifelines() { return lifelines_; }

 private:
  void accept_one() {
    Descriptor stranger(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!stranger || !is_same_user(stranger.get())) return;
    if (strangers_.size() >= kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(stranger));
  }

  // A stranger that says anything but hello is sent away.
  void hear(std::size_t index) {
    Descriptor stranger = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
    auto hello = receive_with_descriptors(stranger.get());
    if (!hello || hello->descriptors.size() != 1 || !hello->text.starts_with(nonce_ + " ")) return;
    const std::size_t rank = std::strtoul(hello->text.c_str() + nonce_.size() + 1, nullptr, 10);
    if (rank == 0 || rank >= sockets_.size() || sockets_[rank]) return;
    sockets_[rank] = std::move(stranger);
    lifelines_[rank] = std::move(hello->descriptors[0]);
    ++arrived_;
  }

  std::string nonce_, name_;
  Descriptor listener_;
  std::vector<Descriptor> strangers_, sockets_, lifelines_;
  std::size_t arrived_ = 0;
};

Met invite(const SegmentPlan& plan, const Notes& notes) {
  const std::string nonce = random_hex(32);
  Reception reception(plan.ranks, nonce);
  Segment segment = Segment::create(plan);
  notes.set(kInvitation, reception.name() + " " + nonce);
  Lifeline own = make_lifeline();
  reception.lifelines()[0] = std::move(own.shown);
  reception.wait_for_all(notes);
  reception.welcome_all(segment, notes);
  reception.lifelines()[0].close();
  return {std::move(segment), std::move(reception.lifelines()), std::move(own.kept)};
}

DescriptorMessage next_message(int socket, const Notes& notes) {
  for (;;) {
    if (auto message = receive_with_descriptors(socket)) {
      if (!message->text.empty()) return std::move(*message);
      throw Failure(DDP_BACKEND_PEER_LOST, "rank 0 ended, or gave up, before all ranks had come");
    }
    if (errno != EAGAIN && errno != EINTR)
      throw Failure(DDP_BACKEND_PEER_LOST, "rank 0's socket: " + system_error(errno));
    pollfd event = {socket, POLLIN, 0};
    if (poll(&event, 1, static_cast<int>(kBetweenLooks.count())) == 0) notes.look();
  }
}

// Returns a connection to rank 0, or throws: then that rank is on another node, as far as shared memory is concerned.
Descriptor connect_to(const std::string& name, const ddp_backend_group_config& config, const Notes& notes) {
  Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, &length);
  std::string why;
  if (!connection || connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    why = system_error(errno);
  } else if (!is_same_user(connection.get())) {
    why = "it belongs to another user";
  } else {
    return connection;
  }
  const auto job_rank = [&](int rank) {
    return std::to_string(config.job_ranks != nullptr ? config.job_ranks[rank] : rank);
  };
  why = "rank " + job_rank(config.rank) + " shares no memory with rank " + job_rank(0) + " (its Unix socket: " + why +
        "): they are on different nodes, in different network namespaces, or of different users; the backend \"ddp\" "
        "works within one node only, \"gloo\" between nodes, too";
  notes.set(kApart, why);
  throw Failure(DDP_BACKEND_ERROR, why);
}

Met join(const ddp_backend_group_config& config, const Notes& notes) {
  const std::string invitation = notes.get(kInvitation);
  const std::size_t space = invitation.find(' ');
  const Descriptor connection = connect_to(invitation.substr(0, space), config, notes);
  Lifeline own = make_lifeline();
  const std::string hello = invitation.substr(space + 1) + " " + std::to_string(config.rank);
  send_soon(connection.get(), hello, {own.shown.get()}, notes);
  DescriptorMessage welcome = next_message(connection.get(), notes);
  const auto ranks = static_cast<std::size_t>(config.size);
  if (welcome.descriptors.size() != 1) throw Failure(DDP_BACKEND_ERROR, "rank 0 passed no segment (ulimit -n?)");
  Segment segment = Segment::attach(std::move(welcome.descriptors[0]));
  std::vector<Descriptor> lifelines;
  while (lifelines.size() < ranks) {
    DescriptorMessage some = next_message(connection.get(), notes);
    if (some.descriptors.size() != std::min(kMostDescriptors, ranks - lifelines.size())) {
      throw Failure(DDP_BACKEND_ERROR, "this process may not open a descriptor for each of " + std::to_string(ranks) +
                                           " ranks (raise ulimit -n)");
    }
    for (Descriptor& one : some.descriptors) lifelines.push_back(std::move(one));
  }
  if (segment.ranks() != ranks) throw Failure(DDP_BACKEND_ERROR, "rank 0 made a segment for another number of ranks");
  lifelines[static_cast<std::size_t>(config.rank)].close();
  return {std::move(segment), std::move(lifelines), std::move(own.kept)};
}

}  // namespace

Met meet(const ddp_backend_group_config& config, const SegmentPlan& plan, Clock::time_point deadline) {
  const Notes notes(config.store, deadline);
  return config.rank == 0 ? invite(plan, notes) : join(config, notes);
}

}  // namespace ddp::collectives
