// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/entrance.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;

namespace {

constexpr std::chrono::seconds kTryAgainIn(1);  // where no descriptor was left for a visitor

}  // namespace

Entrance::Entrance(asio::io_context& io, Descriptor listener, Welcome welcome)
    : welcome_(std::move(welcome)), listener_(io, listener.release()), pause_(io) {
  wait_for_visitor();
}

void Entrance::close() {
  boost::system::error_code ignored;
  listener_.close(ignored);
  pause_.cancel();
}

void Entrance::wait_for_visitor() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (!error) let_in();
  });
}

void Entrance::let_in() {
  while (true) {
    Descriptor visitor(accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (visitor) {
      welcome_(std::move(visitor));
    } else if (errno == EAGAIN) {
      return wait_for_visitor();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
  pause_.expires_after(kTryAgainIn);
  pause_.async_wait([this](const auto& error) {
    if (!error) let_in();
  });
}

}  // namespace ddp::launcher
