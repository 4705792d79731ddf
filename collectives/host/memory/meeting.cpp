// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/meeting.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text_stream.hpp"

namespace ddp::collectives {
namespace {

using rendezvous::Descriptor;
using rendezvous::DescriptorMessage;
using rendezvous::kMostDescriptors;
using rendezvous::receive_with_descriptors;
using rendezvous::send_with_descriptors;
using std::chrono::milliseconds;

constexpr char kWelcome[] = "welcome";
constexpr std::size_t kMostAbsent = 4;  // ranks asked for in the store at each look
// Interval between looks into the store while others are awaited: a call that libddp interrupts ends the meeting.
constexpr milliseconds kBetweenLooksInStore{100};
constexpr std::size_t kMostStrangers = 64;  // connections, besides one for each rank, that have not said hello yet

std::string system_error(int error) { return std::strerror(error); }

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

std::vector<std::uint32_t> without(std::vector<std::uint32_t> ranks, const std::vector<std::uint32_t>& some) {
  std::erase_if(ranks, [&](std::uint32_t rank) { return std::count(some.begin(), some.end(), rank) > 0; });
  return ranks;
}

// Keys in the store: the first rank's socket and nonce, and why a rank does not come.
std::string invitation_key(std::uint32_t first) { return "segment/" + std::to_string(first); }
std::string apart_key(std::uint32_t rank) { return "apart/" + std::to_string(rank); }

// Sends as soon as the socket takes it. The kernel limits how many descriptors a user has under way (ETOOMANYREFS).
void send_soon(int socket, const std::string& text, const std::vector<int>& descriptors, const Notes& notes) {
  while (!send_with_descriptors(socket, text, descriptors)) {
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
      notes.check_time();
      poll(nullptr, 0, 1);
    } else if (errno != EINTR) {
      throw Failure(DDP_BACKEND_PEER_LOST, "passing the segment: " + system_error(errno));
    }
  }
}

// The first rank's side: which ranks have said hello, and which say in the store that they cannot.
class Reception {
 public:
  Reception(const std::vector<std::uint32_t>& ranks, std::string nonce)
      : ranks_(ranks), nonce_(std::move(nonce)), sockets_(ranks.size()), lifelines_(ranks.size()) {
    name_ = "ddp-" + random_hex(16);
    listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = 0;
    const sockaddr_un address = abstract_address(name_, &length);
    if (!listener_ || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        listen(listener_.get(), static_cast<int>(ranks.size() + kMostStrangers)) != 0) {
      throw Failure(DDP_BACKEND_ERROR, "a Unix socket to pass the shared memory: " + system_error(errno));
    }
  }

  const std::string& name() const { return name_; }

  void wait_for_all(const Notes& notes) {
    while (arrived_ + apart_.size() + 1 < ranks_.size()) {
      std::vector<pollfd> events = {{listener_.get(), POLLIN, 0}};
      for (const Descriptor& stranger : strangers_) events.push_back({stranger.get(), POLLIN, 0});
      const int ready = poll(events.data(), events.size(), static_cast<int>(kBetweenLooksInStore.count()));
      if (ready <= 0) {
        look_for_absent(notes);
        continue;
      }
      for (std::size_t i = events.size(); i-- > 1;) {
        if (events[i].revents != 0) hear(i - 1);
      }
      if (events[0].revents != 0) accept_one();
    }
  }

  // Returns the ranks that cannot come.
  const std::vector<std::uint32_t>& apart() const { return apart_; }
  // Returns the lifelines of the others.
  std::vector<Descriptor> lifelines(Descriptor own) {
    std::vector<Descriptor> all;
    lifelines_[0] = std::move(own);
    for (Descriptor& lifeline : lifelines_) {
      if (lifeline) all.push_back(std::move(lifeline));
    }
    return all;
  }

  // Gives every rank that has come the segment and the alarm, if there is one, and the lifelines.
  void welcome_all(const std::string& text, const std::vector<int>& segment_and_alarm,
                   const std::vector<Descriptor>& lifelines, const Notes& notes) const {
    for (const Descriptor& socket : sockets_) {
      if (!socket) continue;
      send_soon(socket.get(), text, segment_and_alarm, notes);
      for (std::size_t first = 0; first < lifelines.size(); first += kMostDescriptors) {
        std::vector<int> some;
        const std::size_t end = std::min(first + kMostDescriptors, lifelines.size());
        for (std::size_t r = first; r < end; ++r) some.push_back(lifelines[r].get());
        send_soon(socket.get(), kWelcome, some, notes);
      }
    }
  }

 private:
  void accept_one() {
    Descriptor stranger(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!stranger || !is_same_user(stranger.get())) return;
    if (strangers_.size() >= ranks_.size() + kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(stranger));
  }

  // A stranger that says anything but hello is sent away.
  void hear(std::size_t index) {
    Descriptor stranger = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
    auto hello = receive_with_descriptors(stranger.get());
    if (!hello || hello->descriptors.size() != 1 || !hello->text.starts_with(nonce_ + " ")) return;
    const std::size_t rank = std::strtoul(hello->text.c_str() + nonce_.size() + 1, nullptr, 10);
    const auto found = std::find(ranks_.begin() + 1, ranks_.end(), rank);
    if (found == ranks_.end()) return;
    const auto place = static_cast<std::size_t>(found - ranks_.begin());
    if (sockets_[place]) return;
    sockets_[place] = std::move(stranger);
    lifelines_[place] = std::move(hello->descriptors[0]);
    ++arrived_;
  }

  // Asks the store for some of the ranks that have not come. Throws if libddp has given up on the group.
  void look_for_absent(const Notes& notes) {
    notes.check_time();
    std::string why;
    for (std::size_t asked = 0, tried = 0; asked < kMostAbsent && tried < ranks_.size(); ++tried) {
      next_asked_ = (next_asked_ + 1) % ranks_.size();
      const std::uint32_t rank = ranks_[next_asked_];
      if (next_asked_ == 0 || sockets_[next_asked_] || std::count(apart_.begin(), apart_.end(), rank) > 0) continue;
      ++asked;
      if (notes.look(apart_key(rank), why)) apart_.push_back(rank);
    }
  }

  const std::vector<std::uint32_t> ranks_;
  std::string nonce_, name_;
  Descriptor listener_;
  std::vector<Descriptor> strangers_, sockets_, lifelines_;
  std::vector<std::uint32_t> apart_;
  std::size_t arrived_ = 0, next_asked_ = 0;
};

Descriptor make_alarm() {
  Descriptor alarm(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!alarm) throw Failure(DDP_BACKEND_ERROR, "eventfd: " + system_error(errno));
  return alarm;
}

Met invite(const std::vector<std::uint32_t>& ranks, std::size_t group_size, SegmentPlan plan, const Notes& notes) {
  const std::string nonce = random_hex(32);
  Reception reception(ranks, nonce);
  plan.ranks = static_cast<std::uint32_t>(ranks.size());
  auto segment = std::make_unique<Segment>(Segment::create(plan));
  notes.set(invitation_key(ranks[0]), reception.name() + " " + nonce);
  Lifeline own = make_lifeline();
  reception.wait_for_all(notes);
  Met met;
  met.ranks = without(ranks, reception.apart());
  if (met.ranks.size() < ranks.size()) {
    plan.ranks = static_cast<std::uint32_t>(met.ranks.size());
    segment = std::make_unique<Segment>(Segment::create(plan));
  }
  std::vector<int> descriptors = {segment->descriptor()};
  if (met.ranks.size() < group_size) {
    met.alarm = make_alarm();
    descriptors.push_back(met.alarm.get());
  }
  std::string text = kWelcome;
  for (const std::uint32_t rank : reception.apart()) text += " " + std::to_string(rank);
  met.lifelines = reception.lifelines(std::move(own.shown));
  reception.welcome_all(text, descriptors, met.lifelines, notes);
  met.lifelines[0].close();
  met.segment = std::move(segment);
  met.own_lifeline = std::move(own.kept);
  return met;
}

DescriptorMessage next_message(int socket, const Notes& notes) {
  for (;;) {
    if (auto message = receive_with_descriptors(socket)) {
      if (!message->text.empty()) return std::move(*message);
      throw Failure(DDP_BACKEND_PEER_LOST, "the first rank of this node ended, or gave up, before all ranks had come");
    }
    if (errno != EAGAIN && errno != EINTR)
      throw Failure(DDP_BACKEND_PEER_LOST, "the socket of the first rank of this node: " + system_error(errno));
    pollfd event = {socket, POLLIN, 0};
    if (poll(&event, 1, static_cast<int>(kBetweenLooksInStore.count())) == 0) {
      std::string none;  // a call that libddp interrupts ends the meeting
      notes.look("interrupted", none);
      notes.check_time();
    }
  }
}

// Returns a connection to the first rank, or none with the reason.
Descriptor connect_to(const std::string& name, std::string& why) {
  Descriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = abstract_address(name, &length);
  if (!connection || connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    why = "its Unix socket: " + system_error(errno);
  } else if (!is_same_user(connection.get())) {
    why = "it belongs to another user";
  } else {
    return connection;
  }
  return {};
}

// The ranks that a welcome names: those that are apart.
std::vector<std::uint32_t> named_in(const std::string& welcome) {
  rendezvous::TextStream words(welcome.substr(std::min(sizeof kWelcome - 1, welcome.size())));
  return {std::istream_iterator<std::uint32_t>(words), {}};
}

std::optional<Met> join(std::uint32_t rank, const std::vector<std::uint32_t>& ranks, const Notes& notes,
                        std::string& why) {
  const std::string whose = "rank " + std::to_string(ranks[0]) + " of the group";
  const std::string invitation = notes.get(invitation_key(ranks[0]), whose);
  const std::size_t space = invitation.find(' ');
  const Descriptor connection = connect_to(invitation.substr(0, space), why);
  if (!connection) return std::nullopt;
  Lifeline own = make_lifeline();
  const std::string hello = invitation.substr(space + 1) + " " + std::to_string(rank);
  send_soon(connection.get(), hello, {own.shown.get()}, notes);
  DescriptorMessage welcome = next_message(connection.get(), notes);
  if (welcome.descriptors.empty()) throw Failure(DDP_BACKEND_ERROR, whose + " passed no segment (ulimit -n?)");
  Met met;
  met.segment = std::make_unique<Segment>(Segment::attach(std::move(welcome.descriptors[0])));
  if (welcome.descriptors.size() > 1) met.alarm = std::move(welcome.descriptors[1]);
  met.ranks = without(ranks, named_in(welcome.text));
  const std::size_t present = met.ranks.size();
  while (met.lifelines.size() < present) {
    DescriptorMessage some = next_message(connection.get(), notes);
    if (some.descriptors.size() != std::min(kMostDescriptors, present - met.lifelines.size())) {
      throw Failure(DDP_BACKEND_ERROR, "this process may not open a descriptor for each of " + std::to_string(present) +
                                           " ranks (raise ulimit -n)");
    }
    for (Descriptor& one : some.descriptors) met.lifelines.push_back(std::move(one));
  }
  const auto place = std::find(met.ranks.begin(), met.ranks.end(), rank);
  if (met.segment->ranks() != present || place == met.ranks.end())
    throw Failure(DDP_BACKEND_ERROR, whose + " made a segment for other ranks");
  met.lifelines[static_cast<std::size_t>(place - met.ranks.begin())].close();
  met.own_lifeline = std::move(own.kept);
  return met;
}

Met alone(std::uint32_t rank, std::size_t group_size, SegmentPlan plan) {
  plan.ranks = 1;
  Met met;
  met.segment = std::make_unique<Segment>(Segment::create(plan));
  met.ranks = {rank};
  met.lifelines.resize(1);
  if (group_size > 1) met.alarm = make_alarm();
  return met;
}

}  // namespace

Met meet(std::uint32_t rank, const std::vector<std::uint32_t>& ranks, std::size_t group_size, const SegmentPlan& plan,
         const Notes& notes) {
  if (ranks.size() == 1) return alone(rank, group_size, plan);
  if (rank == ranks[0]) return invite(ranks, group_size, plan, notes);
  std::string why;
  if (auto met = join(rank, ranks, notes, why)) return std::move(*met);
  notes.set(apart_key(rank), why);
  Met met = alone(rank, group_size, plan);
  met.why_apart = why;
  return met;
}

}  // namespace ddp::collectives
