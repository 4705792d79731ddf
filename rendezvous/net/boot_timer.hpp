// SPDX-License-Identifier: BSD-3-Clause
// A timer of an event loop that expires also while the machine is suspended: as soon as it wakes. Asio's own timers
// then wait for the rest of their time.
#pragma once

#include <utility>

#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

// Has what CoreDriver calls of asio::steady_timer. One wait at a time.
class BootTimer {
 public:
  using clock_type = BootClock;

  // Throws Error if there is no descriptor left.
  explicit BootTimer(asio::io_context& io);

  void expires_at(std::chrono::steady_clock::time_point time);
  void cancel() { timer_.cancel(); }
  // Calls handler(error), with an error if it was cancelled.
  template <typename Handler>
  void async_wait(Handler handler) {
    timer_.async_wait(asio::posix::stream_descriptor::wait_read, std::move(handler));
  }

 private:
  asio::posix::stream_descriptor timer_;
};

}  // namespace ddp::rendezvous
