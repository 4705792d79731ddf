// SPDX-License-Identifier: BSD-3-Clause
// One end of a pair of Unix sockets that keep messages apart, on an event loop. Such a pair outlives the processes that
// use it: their parent holds both ends, so what is sent while nobody reads is there for the next one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

inline constexpr std::size_t kMaxChannelText = 64 << 10;
// The longest text within a message: JSON makes it six times as long at most.
inline constexpr std::size_t kMaxChannelWords = 10 << 10;
static_assert(6 * kMaxChannelWords + 1024 < kMaxChannelText);

class MessageChannel {
 public:
  // Uses a copy of `socket`. Calls on_message on the loop's thread for each message; if there is none, nothing is read.
  MessageChannel(asio::io_context& io, int socket, std::function<void(DescriptorMessage)> on_message);
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  // Sends a text, which is not empty and at most kMaxChannelText long, and a descriptor if there is one. What the
  // socket has no room for waits here. Call it on the loop's thread.
  void send(std::string text, Descriptor descriptor = {});
  // Returns how many messages wait here.
  std::size_t waiting() const;
  // Forgets the oldest of the messages that wait here.
  void drop_oldest();

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
