// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/network.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"

namespace ddp::collectives {
namespace {

using rendezvous::Descriptor;

// What an event is about: one of these, or one of them with a number.
constexpr std::uint64_t kListener = 0, kAlarm = 1, kMessage = 2, kStranger = 3, kLosses = 4;
constexpr std::uint64_t about(std::uint64_t kind, std::uint64_t number = 0) { return kind << 32 | number; }

constexpr std::size_t kMostWithoutHello = 64;
constexpr int kLookMs = 100;  // between looks at whether libddp has given up on the group
constexpr int kBusyMs = 1;    // while links are being made

}  // namespace

Network::Network(OtherNodesPlan plan, Descriptor alarm, Membership& membership)
    : layout_(std::move(plan.layout)),
      ring_bytes_(plan.ring_bytes),
      endpoints_(std::move(plan.endpoints)),
      secrets_(plan.secrets),
      membership_(membership),
      listener_(std::move(plan.listener)),
      alarm_(std::move(alarm)),
      arrived_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      loss_links_(layout_.node_count()) {
  if (!arrived_ || !events_) throw Failure(DDP_BACKEND_ERROR, std::string("links: ") + std::strerror(errno));
  membership_.when_lost = [this] { eventfd_write(alarm_.get(), 1); };
  watch(listener_.get(), EPOLLIN, about(kListener));
  if (layout_.is_first()) watch(alarm_.get(), EPOLLIN | EPOLLET, about(kAlarm));
}

Network::~Network() {
  pass_on_loss();
  const std::lock_guard lock(mutex_);
  for (std::uint32_t node = 0; node < loss_links_.size(); ++node)
    tell(node, lost_value(layout_.rank, LossReason::Left));
}

void Network::watch(int descriptor, std::uint32_t events, std::uint64_t what) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = what;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Failure(DDP_BACKEND_ERROR, std::string("watching a link: epoll_ctl: ") + std::strerror(errno));
}

void Network::serve() {
  epoll_event events[16];
  const int count = epoll_wait(events_.get(), events, 16, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t kind = events[i].data.u64 >> 32, number = events[i].data.u64 & 0xffffffff;
    if (kind == kListener) accept_all();
    if (kind == kStranger) hear(number);
    if (kind == kAlarm) pass_on_loss();
    if (kind == kMessage) ring();
    if (kind == kLosses) hear_of_losses(static_cast<std::uint32_t>(number));
  }
}

void Network::accept_all() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Without a descriptor to accept with, the event would come again at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) poll(nullptr, 0, kBusyMs);
      return;
    }
    if (strangers_.size() >= kMostWithoutHello) strangers_.erase(strangers_.begin());
    const std::uint64_t number = next_stranger_++ & 0xffffffff;
    watch(socket.get(), EPOLLIN, about(kStranger, number));
    strangers_.insert_or_assign(number, Stranger(std::move(socket)));
  }
}

void Network::hear(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  const Stranger::Said said = found->second.hear(secrets_);
  if (said == Stranger::Said::NothingYet) return;
  if (said == Stranger::Said::Hello) admit(found->second);
  strangers_.erase(found);  // closes it, unless it was admitted
}

void Network::admit(Stranger& stranger) {
  const Hello& hello = stranger.hello();
  const auto purpose = static_cast<std::uint32_t>(hello.purpose);
  if (hello.to != layout_.rank || hello.from >= layout_.size() || layout_.is_local(hello.from) || purpose < 1 ||
      purpose > 3 || aborted_) {
    return;
  }
  Link*& known = made_by_others_[{hello.from, hello.purpose}];
  if (known != nullptr) return;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, stranger.descriptor(), nullptr);
  known = &links_.emplace_back(stranger.take_socket(), secrets_);
  if (hello.purpose == LinkPurpose::Losses) {
    const std::uint32_t node = layout_.node_of[hello.from];
    loss_links_[node].link = known;
    watch(known->descriptor(), EPOLLIN | EPOLLRDHUP, about(kLosses, node));
    if (told_ != 0) tell(node, told_);
  }
  ++arrivals_;
  eventfd_write(arrived_.get(), 1);
  ring();
}

// A rank that has left says so. Any other end of the link is the end of its rank.
void Network::hear_of_losses(std::uint32_t node) {
  const std::lock_guard lock(mutex_);
  LossLink& from = loss_links_[node];
  if (from.is_over || from.link == nullptr) return;
  for (;;) {
    iovec rest = {reinterpret_cast<char*>(&from.word) + from.heard, sizeof from.word - from.heard};
    const std::size_t got = from.link->read(&rest, 1);
    from.heard += got;
    if (got == 0) break;
    if (from.heard < sizeof from.word) continue;
    from.heard = 0;
    if (lost_rank(from.word) == layout_.nodes[node].front() && lost_reason(from.word) == LossReason::Left) {
      from.is_over = true;
      epoll_ctl(events_.get(), EPOLL_CTL_DEL, from.link->descriptor(), nullptr);
      return;
    }
    membership_.lose(lost_rank(from.word), lost_reason(from.word));
  }
  if (!from.link->is_broken()) return;
  from.is_over = true;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, from.link->descriptor(), nullptr);
  membership_.lose(layout_.nodes[node].front(), LossReason::Died);
}

void Network::pass_on_loss() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t lost = membership_.segment().header().lost;
  if (lost == 0 || told_ != 0) return;
  told_ = lost;
  for (std::uint32_t node = 0; node < loss_links_.size(); ++node) tell(node, lost);
}

// Such a link carries a few words in all, so its buffer always has room.
void Network::tell(std::uint32_t node, std::uint64_t lost) {
  LossLink& to = loss_links_[node];
  if (to.link == nullptr || to.is_over || !to.link->was_opened()) return;
  iovec word = {&lost, sizeof lost};
  to.link->write(&word, 1);
}

bool Network::has_all_loss_links() {
  for (std::uint32_t node = 0; node < loss_links_.size(); ++node) {
    Link* const link = loss_links_[node].link;
    if (node == layout_.node) continue;
    if (link == nullptr) return false;
    if (!link->is_open() && link->is_broken()) {
      throw Failure(DDP_BACKEND_PEER_LOST, "connecting to rank " + std::to_string(layout_.nodes[node].front()) +
                                               " of the group: " + link->why_broken());
    }
    if (!link->is_open()) return false;
  }
  return true;
}

// Each rank connects to those before it.
void Network::link_first_ranks(const Notes& notes) {
  if (!layout_.is_first()) return;
  std::vector<Link*> connecting;
  for (std::uint32_t node = 0; node < layout_.node; ++node) {
    connecting.push_back(&connect(layout_.nodes[node].front(), LinkPurpose::Losses));
    const std::lock_guard lock(mutex_);
    loss_links_[node].link = connecting.back();
  }
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (has_all_loss_links()) break;
    }
    std::vector<pollfd> events = {{arrived_.get(), POLLIN, 0}};
    for (const Link* link : connecting) {
      if (const short wanted = link->events_to_open(); wanted != 0) events.push_back({link->descriptor(), wanted, 0});
    }
    if (poll(events.data(), events.size(), kLookMs) == 0) {
      std::string none;  // a call that libddp interrupts ends the meeting
      notes.look("interrupted", none);
      notes.check_time();
    }
    quiet();
  }
  for (std::uint32_t node = 0; node < layout_.node; ++node)
    watch(connecting[node]->descriptor(), EPOLLIN | EPOLLRDHUP, about(kLosses, node));
  const std::lock_guard lock(mutex_);
  for (std::uint32_t node = 0; node < loss_links_.size() && told_ != 0; ++node) tell(node, told_);
}

Link& Network::connect(std::uint32_t to, LinkPurpose purpose) {
  Hello hello;
  hello.from = layout_.rank;
  hello.to = to;
  hello.purpose = purpose;
  const std::lock_guard lock(mutex_);
  Link& link = links_.emplace_back(endpoints_[to], hello, secrets_);
  if (aborted_) link.shut_down();
  return link;
}

Link* Network::find(std::uint32_t from, LinkPurpose purpose) {
  const std::lock_guard lock(mutex_);
  const auto found = made_by_others_.find({from, purpose});
  return found != made_by_others_.end() ? found->second : nullptr;
}

void Network::ring_for(const Link& link) {
  if (link.descriptor() >= 0) watch(link.descriptor(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, about(kMessage));
}

void Network::quiet() const {
  eventfd_t count = 0;
  eventfd_read(arrived_.get(), &count);
}

void Network::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const Link& link : links_) {
    const bool is_for_losses = std::any_of(loss_links_.begin(), loss_links_.end(),
                                           [&](const LossLink& losses) { return losses.link == &link; });
    if (!is_for_losses) link.shut_down();
  }
  eventfd_write(arrived_.get(), 1);
}

void Network::ring() const {
  Bell& bell = membership_.segment().bell(membership_.rank());
  bell.rings.fetch_add(1);
  if (bell.sleepers != 0) wake_sleepers(bell.rings);
}

}  // namespace ddp::collectives
