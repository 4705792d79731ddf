// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/message_channel.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/check.hpp"

namespace ddp::rendezvous {

// Pending waits keep it alive.
class MessageChannel::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(asio::io_context& io, int socket, std::function<void(DescriptorMessage)> on_message)
      : socket_(io, ::fcntl(socket, F_DUPFD_CLOEXEC, 0)), on_message_(std::move(on_message)) {}

  void read() {
    if (!on_message_) return;
    socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](const auto& error) {
      if (error) return;
      while (self->socket_.is_open()) {
        auto message = receive_with_descriptors(self->socket_.native_handle());
        if (!message && errno == EINTR) continue;
        if (!message) break;
        if (message->text.empty()) return;  // nobody holds the other end any more
        self->on_message_(std::move(*message));
      }
      if (self->socket_.is_open()) self->read();
    });
  }

  void send(std::string text, Descriptor descriptor) {
    DDP_CHECK(!text.empty() && text.size() <= kMaxChannelText, text.size());
    waiting_.emplace_back(std::move(text), std::move(descriptor));
    if (waiting_.size() == 1) write();
  }

  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
    waiting_.clear();
    on_message_ = nullptr;
  }

  std::deque<std::pair<std::string, Descriptor>>& waiting() { return waiting_; }

 private:
  void write() {
    while (!waiting_.empty()) {
      const auto& [text, descriptor] = waiting_.front();
      std::vector<int> descriptors;
      if (descriptor) descriptors.push_back(descriptor.get());
      if (!send_with_descriptors(socket_.native_handle(), text, descriptors)) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return wait();
      }
      waiting_.pop_front();
    }
  }

  void wait() {
    socket_.async_wait(asio::posix::stream_descriptor::wait_write, [self = shared_from_this()](const auto& error) {
      if (!error) self->write();
    });
  }

  asio::posix::stream_descriptor socket_;
  std::function<void(DescriptorMessage)> on_message_;
  std::deque<std::pair<std::string, Descriptor>> waiting_;
};

MessageChannel::MessageChannel(asio::io_context& io, int socket, std::function<void(DescriptorMessage)> on_message)
    : loop_(std::make_shared<Loop>(io, socket, std::move(on_message))) {
  loop_->read();
}

MessageChannel::~MessageChannel() { loop_->close(); }

void MessageChannel::send(std::string text, Descriptor descriptor) {
  loop_->send(std::move(text), std::move(descriptor));
}

std::size_t MessageChannel::waiting() const { return loop_->waiting().size(); }

void MessageChannel::drop_oldest() {
  if (!loop_->waiting().empty()) loop_->waiting().pop_front();
}

}  // namespace ddp::rendezvous
