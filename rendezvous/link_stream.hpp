// SPDX-License-Identifier: BSD-3-Clause
// One end of an agent link: frames over a connected byte stream. Owned through shared_ptr by its pending operations;
// all calls and callbacks happen on the thread that runs the executor. It is told to stop, or stops when the stream
// breaks or talks nonsense; then on_closed is called once with the reason and nothing after.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/link_codec.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

// Message: the type that this end receives (AgentState at the coordinator, Directive at an agent).
template <typename Message>
class LinkStream : public std::enable_shared_from_this<LinkStream<Message>> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  struct Callbacks {
    std::function<void(Message)> on_message;
    std::function<void()> on_heartbeat;
    std::function<void(const std::string& why)> on_closed;
  };

  LinkStream(Socket socket, Callbacks callbacks) : socket_(std::move(socket)), callbacks_(std::move(callbacks)) {}

  void start() { read(); }

  template <typename Outgoing>
  void send(const Outgoing& message) {
    if (!socket_.is_open()) return;
    outgoing_.push_back(encode(message));
    if (outgoing_.size() == 1) write();
  }

  // Silent: on_closed is not called.
  void stop() {
    callbacks_ = {};
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = this->shared_from_this()](auto error, std::size_t size) {
      if (error) return self->fail(error.message());
      self->decoder_.feed({self->buffer_.data(), size});
      if (self->deliver()) self->read();
    });
  }

  // False once the stream is over.
  bool deliver() {
    while (true) {
      auto next = decoder_.next();
      if (std::holds_alternative<NeedMoreBytes>(next)) return true;
      if (auto* message = std::get_if<Message>(&next)) {
        // A copy: the callback may stop() this stream, which drops the original.
        if (const auto on_message = callbacks_.on_message) on_message(std::move(*message));
        if (!socket_.is_open()) return false;
        continue;
      }
      if (std::holds_alternative<Heartbeat>(next)) {
        if (const auto on_heartbeat = callbacks_.on_heartbeat) on_heartbeat();
        if (!socket_.is_open()) return false;
        continue;
      }
      auto* malformed = std::get_if<MalformedFrame>(&next);
      fail("the other side does not speak the agent link's language: " +
           (malformed ? malformed->why : std::string("a message meant for the other direction")));
      return false;
    }
  }

  void write() {
    asio::async_write(socket_, asio::buffer(outgoing_.front()),
                      [self = this->shared_from_this()](auto error, std::size_t) {
                        if (error) return self->fail(error.message());
                        self->outgoing_.pop_front();
                        if (!self->outgoing_.empty()) self->write();
                      });
  }

  void fail(const std::string& why) {
    const auto on_closed = std::move(callbacks_.on_closed);
    stop();
    if (on_closed) on_closed(why);
  }

  Socket socket_;
  Callbacks callbacks_;
  FrameDecoder decoder_;
  std::array<char, 16384> buffer_;
  std::deque<std::string> outgoing_;
};

}  // namespace ddp::rendezvous
