// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/messages.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "collectives/host/failure.hpp"
#include "collectives/host/memory/copies.hpp"

namespace ddp::collectives {
namespace {

// How long after the end of a link the loss that caused it may take to arrive.
constexpr std::chrono::milliseconds kUntilCauseIsKnown{300};

// One end of a channel's ring of bytes.
struct Channel {
  ChannelEnds& ends;
  unsigned char* ring;
  std::size_t size;

  // Copy at most `bytes`, and return how many they copied.
  std::size_t write(const unsigned char* from, std::size_t bytes) const {
    const std::uint64_t written = ends.written.load(std::memory_order_relaxed);
    const std::size_t room = size - static_cast<std::size_t>(written - ends.read.load(std::memory_order_acquire));
    const std::size_t some = std::min(bytes, room);
    const std::size_t at = written % size, before_end = std::min(some, size - at);
    if (some == 0) return 0;
    copy(ring + at, from, before_end);
    if (some > before_end) copy(ring, from + before_end, some - before_end);
    ends.written.store(written + some, std::memory_order_release);
    return some;
  }
  std::size_t read(unsigned char* to, std::size_t bytes) const {
    const std::uint64_t done = ends.read.load(std::memory_order_relaxed);
    const std::size_t there = static_cast<std::size_t>(ends.written.load(std::memory_order_acquire) - done);
    const std::size_t some = std::min(bytes, there);
    const std::size_t at = done % size, before_end = std::min(some, size - at);
    if (some == 0) return 0;
    copy(to, ring + at, before_end);
    if (some > before_end) copy(to + before_end, ring, some - before_end);
    ends.read.store(done + some, std::memory_order_release);
    return some;
  }
};

Channel channel_of(const Segment& segment, std::uint32_t from, std::uint32_t to) {
  return {segment.channel_ends(from, to), segment.channel(from, to), segment.plan().channel_bytes};
}

}  // namespace

Messages::Messages(const Membership& membership, Network* network)
    : membership_(membership),
      segment_(membership.segment()),
      network_(network),
      rank_(membership.group_rank(membership.rank())),
      size_(network != nullptr ? network->layout().size() : membership.size()),
      outgoing_(size_),
      incoming_(size_),
      links_(network != nullptr ? size_ : 0) {}

std::unique_ptr<Message> Messages::send(const void* data, std::size_t bytes, std::uint32_t peer, std::uint64_t tag) {
  auto message = std::make_unique<Message>();
  *message = {this,  true,
              false, static_cast<std::int32_t>(peer),
              tag,   const_cast<unsigned char*>(static_cast<const unsigned char*>(data)),
              bytes, 0,
              0};
  const std::lock_guard lock(mutex_);
  if (membership_.has_given_up()) throw Failure(DDP_BACKEND_ABORTED, "the group was aborted");
  Outgoing& out = outgoing_[peer];
  if (!out.has_channel) {
    if (is_local(peer)) {
      segment_.allocate_channel(membership_.rank(), place(peer));
    } else {
      connect(peer);
    }
    out.has_channel = true;
  }
  out.queue.push_back(message.get());
  busy_ = true;
  progress_locked();
  return message;
}

std::unique_ptr<Message> Messages::receive(void* data, std::size_t bytes, std::optional<std::uint32_t> peer,
                                           std::uint64_t tag) {
  auto message = std::make_unique<Message>();
  *message = {this,  false,
              false, peer ? static_cast<std::int32_t>(*peer) : DDP_BACKEND_ANY_RANK,
              tag,   static_cast<unsigned char*>(data),
              bytes, 0,
              0};
  const std::lock_guard lock(mutex_);
  if (membership_.has_given_up()) throw Failure(DDP_BACKEND_ABORTED, "the group was aborted");
  if (!match(*message)) receives_.push_back(message.get());
  busy_ = true;
  return message;
}

void Messages::wait(Message& message, std::int64_t timeout_ms, int most_looks) {
  Patience patience = {.most = most_looks / 4, .looks = most_looks / 4};  // a look takes longer than one at a counter
  Deadline deadline(timeout_ms);
  Bell& bell = segment_.bell(membership_.rank());
  std::optional<std::uint32_t> heard;
  // Nothing has moved, for any thread of this rank, since the bell was heard last.
  const auto ready = [&] {
    const std::uint32_t rings = bell.rings;
    if (rings == heard) return false;  // links ring only after a thread has woken up, but that is soon
    heard = rings;
    const std::lock_guard lock(mutex_);
    if (!membership_.has_given_up()) progress_locked();
    return message.done;
  };
  const auto check = [&] {
    std::optional<std::uint32_t> peer;
    if (message.peer >= 0 && is_local(static_cast<std::uint32_t>(message.peer)))
      peer = place(static_cast<std::uint32_t>(message.peer));
    if (membership_.check(peer, deadline, ready)) return true;
    throw_if_gone(message);
    return false;
  };
  bool has_slept = false;
  const auto sleep = [&] {
    bell.sleepers.fetch_add(1);
    if (bell.rings == heard && !membership_.is_over())
      membership_.sleep(bell.rings, *heard, kLongestSleepNs, has_slept);
    bell.sleepers.fetch_sub(1);
    has_slept = true;
  };
  wait_until(patience, ready, check, sleep);
  if (message.sends || message.announced == message.bytes) return;
  throw Failure(DDP_BACKEND_ERROR, "ranks disagree: rank " + std::to_string(message.peer) + " of the group sends " +
                                       std::to_string(message.announced) + " bytes, rank " + std::to_string(rank_) +
                                       " expects " + std::to_string(message.bytes));
}

void Messages::forget(Message& message) {
  const std::lock_guard lock(mutex_);
  receives_.remove(&message);
  for (Outgoing& out : outgoing_) std::erase(out.queue, &message);
  for (Incoming& in : incoming_) {
    for (Early& early : in.early) {
      if (early.into == &message) early.into = nullptr;
    }
  }
}

void Messages::move_to(Message& message, void* memory) {
  const std::lock_guard lock(mutex_);
  message.memory = static_cast<unsigned char*>(memory);
}

void Messages::give_up() {
  const std::lock_guard lock(mutex_);  // waits for a thread that is moving a message
  receives_.clear();
  for (Outgoing& out : outgoing_) out.queue.clear();
  for (Incoming& in : incoming_) in.early.clear();
  busy_ = false;
}

bool Messages::progress() {
  if (!busy_) return false;
  const std::lock_guard lock(mutex_);
  return !membership_.has_given_up() && progress_locked();
}

bool Messages::progress_locked() {
  bool moving = false;
  const std::uint64_t arrivals = network_ != nullptr ? network_->arrivals() : 0;
  const bool has_new_links = std::exchange(arrivals_, arrivals) != arrivals;
  for (std::uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (has_new_links && !is_local(peer) && links_[peer].in == nullptr) {
      links_[peer].in = network_->find(peer, LinkPurpose::Messages);
      if (links_[peer].in != nullptr) network_->ring_for(*links_[peer].in);
    }
    pull(peer);
    push(peer);
    moving = moving || !outgoing_[peer].queue.empty() || incoming_[peer].coming;
  }
  busy_ = moving || !receives_.empty();
  return moving;
}

// Write and read what can move now, through shared memory or a link.
std::size_t Messages::write(std::uint32_t peer, const unsigned char* from, std::size_t bytes) {
  if (is_local(peer)) return channel_of(segment_, membership_.rank(), place(peer)).write(from, bytes);
  const iovec part = {const_cast<unsigned char*>(from), bytes};
  return bytes > 0 && links_[peer].out->is_open() ? links_[peer].out->write(&part, 1) : 0;
}

std::size_t Messages::read(std::uint32_t peer, unsigned char* to, std::size_t bytes) {
  if (is_local(peer)) return channel_of(segment_, place(peer), membership_.rank()).read(to, bytes);
  if (links_[peer].in == nullptr || bytes == 0) return 0;
  const iovec part = {to, bytes};
  return links_[peer].in->read(&part, 1);
}

void Messages::connect(std::uint32_t peer) {
  if (links_[peer].out != nullptr) return;
  links_[peer].out = &network_->connect(peer, LinkPurpose::Messages);
  network_->ring_for(*links_[peer].out);
}

// A rank of another node that has left is noticed by the end of its links. If it was lost, that is known soon.
void Messages::throw_if_gone(const Message& message) {
  if (message.peer < 0 || is_local(static_cast<std::uint32_t>(message.peer))) return;
  const auto peer = static_cast<std::uint32_t>(message.peer);
  const std::lock_guard lock(mutex_);
  connect(peer);
  Link& out = *links_[peer].out;
  if (!out.is_open() && !out.is_broken()) return;
  if (!out.is_at_end() || (!message.sends && links_[peer].in != nullptr && !links_[peer].in->is_at_end())) return;
  const auto now = std::chrono::steady_clock::now();
  if (!gone_since_) gone_since_ = now;
  if (now - *gone_since_ > kUntilCauseIsKnown && !message.done) membership_.end_wait_for(peer);
}

// Writes into the channel to a rank what has room.
void Messages::push(std::uint32_t peer) {
  Outgoing& out = outgoing_[peer];
  bool moved = false;
  while (!out.queue.empty()) {
    Message& message = *out.queue.front();
    const Header header = {message.tag, message.bytes};
    std::array<unsigned char, sizeof header> bytes;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::size_t some = write(peer, bytes.data() + out.header_moved, sizeof header - out.header_moved);
    moved = moved || some > 0;
    out.header_moved += some;
    if (out.header_moved < sizeof header) break;
    some = write(peer, message.memory + message.moved, message.bytes - message.moved);
    moved = moved || some > 0;
    message.moved += some;
    if (message.moved < message.bytes) break;
    message.done = true;
    out.queue.pop_front();
    out.header_moved = 0;
  }
  if (moved) ring(peer);
}

// Reads from the channel what a rank has written.
void Messages::pull(std::uint32_t peer) {
  Incoming& in = incoming_[peer];
  bool moved = false;
  for (;;) {
    if (!in.coming) {
      const std::size_t some = read(peer, in.header.data() + in.header_moved, sizeof(Header) - in.header_moved);
      moved = moved || some > 0;
      in.header_moved += some;
      if (in.header_moved < sizeof(Header)) break;
      in.coming = begin_message(peer);
    }
    Early& early = in.early.back();
    unsigned char* const to = early.into != nullptr ? early.into->memory : early.kept.data();
    if (early.moved < early.bytes) {
      const std::size_t some = read(peer, to + early.moved, early.bytes - early.moved);
      moved = moved || some > 0;
      early.moved += some;
      if (early.moved < early.bytes) break;
    }
    in.coming = false;
    in.header_moved = 0;
    if (early.into != nullptr) {
      early.into->done = true;
      in.early.pop_back();
    }
  }
  if (moved) ring(peer);
}

// A header has come. Finds the receive that was posted first for it, or keeps what follows.
bool Messages::begin_message(std::uint32_t peer) {
  Incoming& in = incoming_[peer];
  Header header;
  std::memcpy(&header, in.header.data(), sizeof header);
  Early& early = in.early.emplace_back();
  early.tag = header.tag;
  early.bytes = header.bytes;
  const auto posted = std::find_if(receives_.begin(), receives_.end(), [&](const Message* receive) {
    return receive->tag == header.tag &&
           (receive->peer == static_cast<std::int32_t>(peer) || receive->peer == DDP_BACKEND_ANY_RANK);
  });
  if (posted != receives_.end()) {
    Message& receive = **posted;
    receives_.erase(posted);
    receive.peer = static_cast<std::int32_t>(peer);
    receive.announced = header.bytes;
    if (receive.bytes == header.bytes) {
      early.into = &receive;
      return true;
    }
    receive.done = true;  // its wait says that the sizes differ
  }
  early.kept.resize(header.bytes);
  return true;
}

// Gives a receive the first message that came for it before, if there is one.
bool Messages::match(Message& receive) {
  for (std::uint32_t peer = 0; peer < size_; ++peer) {
    if (receive.peer >= 0 && receive.peer != static_cast<std::int32_t>(peer)) continue;
    std::list<Early>& early = incoming_[peer].early;
    const auto found = std::find_if(early.begin(), early.end(),
                                    [&](const Early& e) { return e.tag == receive.tag && e.into == nullptr; });
    if (found == early.end()) continue;
    take(receive, peer, found);
    return true;
  }
  return false;
}

void Messages::take(Message& receive, std::uint32_t peer, std::list<Early>::iterator early) {
  Incoming& in = incoming_[peer];
  receive.peer = static_cast<std::int32_t>(peer);
  receive.announced = early->bytes;
  const bool is_coming = in.coming && std::next(early) == in.early.end();
  if (early->bytes != receive.bytes) {
    receive.done = true;
    return;
  }
  if (early->moved > 0) std::memcpy(receive.memory, early->kept.data(), early->moved);
  if (is_coming) {
    early->into = &receive;
    early->kept = {};
    return;
  }
  receive.done = true;
  in.early.erase(early);
}

void Messages::ring(std::uint32_t peer) const {
  if (!is_local(peer)) return;
  Bell& bell = segment_.bell(place(peer));
  bell.rings.fetch_add(1);
  if (bell.sleepers != 0) wake_sleepers(bell.rings);
}

}  // namespace ddp::collectives
