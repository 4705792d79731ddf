// SPDX-License-Identifier: BSD-3-Clause
// One end of an agent link: frames over a connected byte stream. Its pending operations own it through shared_ptr. All
// calls and callbacks happen on the thread that runs the executor, and no call calls a callback. When the stream
// breaks, carries nonsense or is not read by the other side, on_closed is called once with the reason, and nothing
// after it; stop() ends it without a callback.
//
// For a peer that does not read it keeps at most kMaxQueuedBytes, with one heartbeat among them, and one message. A
// link between processes has a cipher; a socketpair within one has none.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/link/codec.hpp"
#include "rendezvous/membership/cipher.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

using LinkSocket = asio::generic::stream_protocol::socket;

// Returns a connected stream socket for this loop; a closed one if there is no memory to watch it.
inline LinkSocket link_socket(asio::io_context& io, Descriptor connected) {
  int family = 0;
  int protocol = 0;
  socklen_t size = sizeof(int);
  ::getsockopt(connected.get(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  ::getsockopt(connected.get(), SOL_SOCKET, SO_PROTOCOL, &protocol, &size);
  LinkSocket socket(io);
  boost::system::error_code error;
  socket.assign(asio::generic::stream_protocol(family, protocol), connected.get(), error);
  if (!error) connected.release();
  return socket;
}

// Two messages of the largest size, or thousands of usual ones. A peer that leaves more unread is cut off; if it comes
// back, it gets the whole state again.
inline constexpr std::size_t kMaxQueuedBytes = 2 * kMaxFrameBytes;
static_assert(kMaxFrameBytes <= LinkCipher::kMaxFrameBytes);

// `Message` is the type that this end receives: AgentState at the coordinator, Directive at an agent.
template <typename Message>
class LinkStream : public std::enable_shared_from_this<LinkStream<Message>> {
 public:
  using Socket = LinkSocket;
  struct Callbacks {
    std::function<void(Message)> on_message;
    std::function<void()> on_heartbeat;
    std::function<void(const std::string& why)> on_closed;
    std::function<void(LookRequest)> on_look_request = {};
    std::function<void(LookAnswer)> on_look_answer = {};
    std::function<void(LookEnd)> on_look_end = {};  // at an agent
    std::function<void(ClockReading)> on_clock = {};
  };

  LinkStream(Socket socket, Callbacks callbacks, std::optional<LinkCipher> cipher = {})
      : socket_(std::move(socket)), callbacks_(std::move(callbacks)), cipher_(std::move(cipher)) {}

  // Begins to read. `first_bytes` are bytes of the link that were received already.
  void start(const std::string& first_bytes = {}) {
    asio::post(socket_.get_executor(), [self = this->shared_from_this(), first_bytes] {
      if (self->socket_.is_open() && self->take(first_bytes)) self->read();
    });
  }

  template <typename Sent>
  void send(const Sent& message) {
    queue({encode(message), false});
  }
  // Sends nothing while another heartbeat waits: thousands may come due while a peer does not read.
  void send(const Heartbeat& heartbeat) {
    if (!has_heartbeat_) queue({encode(heartbeat), true});
  }

  // Returns how much waits for the other side to read.
  std::size_t queued_bytes() const { return queued_bytes_; }

  // Ends the stream without on_closed. What was sent before still goes out, unless the other side had stopped reading.
  void stop() {
    callbacks_ = {};
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  struct Outgoing {
    std::string bytes;
    bool is_heartbeat = false;
  };

  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = this->shared_from_this()](auto error, std::size_t size) {
      if (error) return self->fail(error);
      if (self->take({self->buffer_.data(), size})) self->read();
    });
  }

  // Returns false once the stream is over.
  bool take(std::string_view bytes) {
    bool is_genuine = true;
    if (cipher_) {
      std::string frames;
      is_genuine = cipher_->open(bytes, frames);
      decoder_.feed(frames);
    } else {
      decoder_.feed(bytes);
    }
    if (!deliver()) return false;
    if (!is_genuine) fail("what arrived is not what the other side sent: something changed the link on its way");
    return is_genuine;
  }

  // Hands received messages to the callbacks. Returns false once the stream is over.
  bool deliver() {
    while (true) {
      auto next = decoder_.next();
      if (std::holds_alternative<NeedMore>(next)) return true;
      if (auto* message = std::get_if<Message>(&next)) {
        // A copy: the callback may stop() this stream, which drops the original.
        if (const auto on_message = callbacks_.on_message) on_message(std::move(*message));
        if (!socket_.is_open()) return false;
        continue;
      }
      if (look(next, callbacks_.on_look_request) || look(next, callbacks_.on_look_answer) ||
          look(next, callbacks_.on_look_end) || look(next, callbacks_.on_clock)) {
        if (!socket_.is_open()) return false;
        continue;
      }
      if (std::holds_alternative<Heartbeat>(next)) {
        if (const auto on_heartbeat = callbacks_.on_heartbeat) on_heartbeat();
        if (!socket_.is_open()) return false;
        continue;
      }
      auto* malformed = std::get_if<Malformed>(&next);
      fail("the other side does not speak the agent link's protocol: " +
           (malformed ? malformed->why : std::string("a message meant for the other direction")));
      return false;
    }
  }

  // Hands over a message that decides nothing; returns false if it is another one, or if this end does not take it.
  template <typename Look>
  static bool look(DecodedFrame& frame, const std::function<void(Look)>& callback) {
    auto* const message = std::get_if<Look>(&frame);
    if (message == nullptr || !callback) return false;
    const auto take = callback;  // a copy: it may stop() this stream
    take(std::move(*message));
    return true;
  }

  void queue(Outgoing frame) {
    if (!socket_.is_open() || failing_) return;
    if (queued_bytes_ > kMaxQueuedBytes) return fail_soon("the other side does not read what it is sent");
    has_heartbeat_ |= frame.is_heartbeat;
    if (cipher_) frame.bytes = cipher_->seal(frame.bytes);
    queued_bytes_ += frame.bytes.size();
    outgoing_.push_back(std::move(frame));
    if (outgoing_.size() == 1) write();
  }

  // Sends at once as much as the kernel takes, so that a caller may stop() right after its last message.
  void write() {
    while (!outgoing_.empty()) {
      const std::string& bytes = outgoing_.front().bytes;
      const auto sent = ::send(socket_.native_handle(), bytes.data() + sent_bytes_, bytes.size() - sent_bytes_,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_to_write();
      if (sent < 0) return fail_soon(std::generic_category().message(errno));
      sent_bytes_ += static_cast<std::size_t>(sent);
      if (sent_bytes_ == bytes.size()) written();
    }
  }

  void wait_to_write() {
    socket_.async_wait(Socket::wait_write, [self = this->shared_from_this()](auto error) {
      if (error) return self->fail(error);
      self->write();
    });
  }

  void written() {
    if (outgoing_.front().is_heartbeat) has_heartbeat_ = false;
    queued_bytes_ -= outgoing_.front().bytes.size();
    sent_bytes_ = 0;
    outgoing_.pop_front();
  }

  // Fails after the current call, since the caller of send() must not be called back now.
  void fail_soon(const std::string& why) {
    failing_ = true;
    asio::post(socket_.get_executor(), [self = this->shared_from_this(), why] { self->fail(why); });
  }

  void fail(const boost::system::error_code& error) {
    fail(error == asio::error::eof ? "the other side closed the connection" : error.message());
  }

  void fail(const std::string& why) {
    const auto on_closed = std::move(callbacks_.on_closed);
    stop();
    if (on_closed) on_closed(why);
  }

  Socket socket_;
  Callbacks callbacks_;
  std::optional<LinkCipher> cipher_;
  FrameDecoder decoder_;
  std::array<char, 16384> buffer_;
  std::deque<Outgoing> outgoing_;  // not empty: the kernel's buffer is full
  std::size_t sent_bytes_ = 0;     // how much of the first frame was sent
  std::size_t queued_bytes_ = 0;
  bool has_heartbeat_ = false;  // outgoing_ has one
  bool failing_ = false;
};

}  // namespace ddp::rendezvous
