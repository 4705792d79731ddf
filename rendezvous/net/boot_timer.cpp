// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/boot_timer.hpp"

#include <sys/timerfd.h>

#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

namespace {

int open_timer() {
  const int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (fd >= 0) return fd;
  system_error("cannot open a timerfd");
}

}  // namespace

BootTimer::BootTimer(asio::io_context& io) : timer_(io, open_timer()) {}

void BootTimer::expires_at(std::chrono::steady_clock::time_point time) {
  // This also takes back an expiry that was not waited for.
  const itimerspec once = {.it_interval = {}, .it_value = to_timespec(time)};
  timerfd_settime(timer_.native_handle(), TFD_TIMER_ABSTIME, &once, nullptr);
}

}  // namespace ddp::rendezvous
