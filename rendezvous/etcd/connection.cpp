// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

namespace {

constexpr char kClosed[] = "it closed the connection";

std::string words_of(const boost::system::error_code& error) {
  if (error == asio::error::eof) return kClosed;
  std::string text = std::generic_category().message(error.value());
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// A watch is silent for hours: the kernel asks whether the machine at the other end is still there.
void set_options(int socket) {
  const int on = 1, idle = 5, interval = 2, times = 3;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

}  // namespace

EtcdConnection::EtcdConnection(asio::io_context& io, const TlsContext* tls, std::string host, Callbacks callbacks)
    : io_(io), tls_context_(tls), host_(std::move(host)), callbacks_(std::move(callbacks)), socket_(io) {}

void EtcdConnection::connect(const FoundAddress& address, boost::system::error_code& error) {
  const int family = address.raw()->sa_family;
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket) {
    error = {errno, boost::system::system_category()};
    return;
  }
  set_options(socket.get());
  socket_.assign(asio::generic::stream_protocol(family, IPPROTO_TCP), socket.get(), error);
  if (!error) socket.release();
}

void EtcdConnection::open(const FoundAddress& address) {
  boost::system::error_code error;
  connect(address, error);
  if (error) {
    asio::post(io_, [self = shared_from_this(), why = words_of(error)] { self->ended(why); });
    return;
  }
  const asio::generic::stream_protocol::endpoint to(address.raw(), address.size);
  socket_.async_connect(to, [self = shared_from_this()](const boost::system::error_code& result) {
    if (self->is_over_) return;
    if (result) return self->ended(words_of(result));
    self->opened();
  });
}

void EtcdConnection::opened() {
  is_open_ = true;
  if (tls_context_ != nullptr) {
    try {
      tls_ = std::make_unique<TlsSession>(*tls_context_, host_);
    } catch (const Error& error) {
      return ended(error.what());
    }
    take({});  // the first words are the client's
  }
  if (is_over_) return;
  send_request();
  read();
}

void EtcdConnection::ask(std::string request, HttpAnswer::Shape shape) {
  answer_ = std::make_unique<HttpAnswer>(shape);
  request_ = std::move(request);
  was_sent_ = false;
  if (is_open_) send_request();
}

void EtcdConnection::send_request() {
  if (request_.empty() || (tls_ && !tls_->is_ready())) return;
  was_sent_ = true;
  const std::string request = std::exchange(request_, {});
  if (!tls_) return send(request);
  if (!tls_->send(request)) return;  // the next read says why
  send(tls_->take_outgoing());
}

void EtcdConnection::send(std::string_view bytes) {
  to_write_ += bytes;
  if (writing_.empty()) write();
}

void EtcdConnection::write() {
  if (to_write_.empty()) return;
  writing_ = std::exchange(to_write_, {});
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                      self->writing_.clear();
                      if (!self->is_over_ && !error) self->write();  // after an error the read says why
                    });
}

void EtcdConnection::read() {
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](const boost::system::error_code& error, std::size_t size) {
                            if (self->is_over_) return;
                            if (error) return self->ended(words_of(error));
                            self->take({self->buffer_.data(), size});
                            if (!self->is_over_) self->read();
                          });
}

void EtcdConnection::take(std::string_view bytes) {
  has_heard_ = has_heard_ || (!bytes.empty() && (!tls_ || tls_->is_ready()));
  if (!tls_) return take_plain(bytes);
  std::string plain;
  const bool goes_on = tls_->receive(bytes, plain);
  send(tls_->take_outgoing());
  send_request();
  if (!plain.empty()) take_plain(plain);
  if (!goes_on && !is_over_) ended(tls_->why_over().empty() ? kClosed : tls_->why_over());
}

void EtcdConnection::take_plain(std::string_view plain) {
  if (!answer_) return ended("it sent what nobody asked for");
  const HttpAnswer::State state = answer_->feed(plain);
  for (std::string line; !is_over_ && answer_ && answer_->take_line(line);) callbacks_.on_line(line);
  if (is_over_ || state == HttpAnswer::State::Reading) return;
  if (state == HttpAnswer::State::Bad) return fail(answer_->why_bad());
  finish();
}

void EtcdConnection::finish() {
  const auto answer = std::exchange(answer_, nullptr);
  const bool is_last = !answer->keeps_connection() || answer->has_rest();
  if (is_last) close();
  callbacks_.on_answer(answer->status(), answer->body());
}

// The connection is over; somebody may be waiting for an answer.
void EtcdConnection::ended(const std::string& why) {
  if (!answer_) return close();
  if (answer_->end() == HttpAnswer::State::Done) return finish();
  // A server without TLS may reset the connection before its answer, which is none of TLS, is read.
  if (tls_ && !tls_->is_ready() && tls_->why_over().empty()) return fail("no TLS: " + why);
  if (why != kClosed || has_heard_ || tls_) return fail(why);
  fail(why + " without a word (if it speaks TLS, protocol=https is needed)");
}

void EtcdConnection::fail(const std::string& why) {
  if (std::exchange(is_over_, true)) return;
  close();
  callbacks_.on_failed(why, was_sent_);
}

void EtcdConnection::close() {
  is_over_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace ddp::rendezvous
