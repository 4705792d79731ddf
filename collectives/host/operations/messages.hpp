// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks. Each pair on a node has a channel for each direction, a ring of bytes in the segment into
// which the sender writes one message after the other, each with its tag and length in front. Nothing moves by itself:
// a rank moves what it can of all its messages whenever it starts one, waits for one, or waits long in a collective.
// A rank that has moved something rings the other one's bell. Between nodes the same bytes go over a TCP link for each
// direction, and the "ddp-peers" thread rings the bell.
//
// A message that arrives before its receive is kept in this process's memory until then. Between one pair of ranks,
// messages with one tag arrive in the order sent.
//
// Any thread may call.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/waiting.hpp"
#include "collectives/host/nodes/network.hpp"

namespace ddp::collectives {

class Messages;

struct Message {
  Messages* owner = nullptr;
  bool sends = false;
  bool done = false;
  std::int32_t peer = -1;  // DDP_BACKEND_ANY_RANK until a message has come
  std::uint64_t tag = 0;
  unsigned char* memory = nullptr;
  std::size_t bytes = 0;
  std::size_t moved = 0;
  std::size_t announced = 0;  // in a receive: the sender's size, once the message has begun to come
};

class Messages {
 public:
  // `network` leads to the ranks on other nodes; null if there are none.
  Messages(const Membership& membership, Network* network);

  std::unique_ptr<Message> send(const void* data, std::size_t bytes, std::uint32_t peer, std::uint64_t tag);
  // Without a peer, from any rank.
  std::unique_ptr<Message> receive(void* data, std::size_t bytes, std::optional<std::uint32_t> peer, std::uint64_t tag);
  // Throws Failure. Afterwards message.peer is the other rank. After a timeout the message may be waited for again.
  void wait(Message& message, std::int64_t timeout_ms, int most_looks);
  void forget(Message& message);
  // Lets a receive go on into other memory, of as many bytes.
  void move_to(Message& message, void* memory);
  // Ends all messages: none touches its memory from then on.
  void give_up();

  // Moves what can be moved. Returns whether a message is moving, so that it wants to be called again soon.
  bool progress();

 private:
  struct Header {
    std::uint64_t tag;
    std::uint64_t bytes;
  };
  // A message that came before its receive, or the one that is coming.
  struct Early {
    std::uint64_t tag = 0;
    std::size_t bytes = 0;
    std::size_t moved = 0;
    Message* into = nullptr;  // its receive, if there is one
    std::vector<unsigned char> kept;
  };
  // The links to and from a rank on another node, once they are there.
  struct Links {
    Link* out = nullptr;
    Link* in = nullptr;
  };
  struct Outgoing {
    std::deque<Message*> queue;
    std::size_t header_moved = 0;  // bytes of the first message's header
    bool has_channel = false;
  };
  struct Incoming {
    std::list<Early> early;        // the last one may be incomplete
    std::size_t header_moved = 0;  // bytes of the next message's header
    std::array<unsigned char, sizeof(Header)> header;
    bool coming = false;  // the last of `early` is incomplete
  };

  bool progress_locked();
  std::size_t write(std::uint32_t peer, const unsigned char* from, std::size_t bytes);
  std::size_t read(std::uint32_t peer, unsigned char* to, std::size_t bytes);
  void connect(std::uint32_t peer);
  bool is_local(std::uint32_t peer) const { return network_ == nullptr || network_->layout().is_local(peer); }
  std::uint32_t place(std::uint32_t peer) const {
    return network_ == nullptr ? peer : network_->layout().index_of[peer];
  }
  void throw_if_gone(const Message& message);
  void push(std::uint32_t peer);
  void pull(std::uint32_t peer);
  bool match(Message& receive);
  bool begin_message(std::uint32_t peer);
  void take(Message& receive, std::uint32_t peer, std::list<Early>::iterator early);
  void ring(std::uint32_t peer) const;

  const Membership& membership_;
  const Segment& segment_;
  Network* const network_;
  const std::uint32_t rank_, size_;
  std::mutex mutex_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<Links> links_;
  std::optional<std::chrono::steady_clock::time_point> gone_since_;  // a rank that is waited for has left
  std::uint64_t arrivals_ = 0;                                       // links that have been looked for
  std::list<Message*> receives_;                                     // without a message yet, in the order posted
  std::atomic<bool> busy_{false};  // there are messages to send, or receives that were posted
};

}  // namespace ddp::collectives
