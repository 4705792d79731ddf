// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian/deadman.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

#include "rendezvous/base/boot_clock.hpp"

namespace ddp::launcher {

namespace {

// A record lock belongs to one process, although all of them have the same descriptor.
struct flock whole_file(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Deadman::Deadman()
    : timer_(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      lock_(memfd_create("ddprun_deadman", MFD_CLOEXEC)) {}

void Deadman::set(std::optional<std::chrono::steady_clock::time_point> at) const {
  itimerspec once = {};
  if (at) once.it_value = rendezvous::to_timespec(*at);
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &once, nullptr);  // also takes back that it has expired
}

void Deadman::await_keeper() const {
  while (true) {
    struct flock held = whole_file(F_WRLCK);
    if (fcntl(lock_.get(), F_GETLK, &held) != 0 || held.l_type == F_UNLCK) return;
    poll(nullptr, 0, 1);
  }
}

void Deadman::if_expired(const std::function<void()>& kill) const {
  struct flock lock = whole_file(F_WRLCK);
  fcntl(lock_.get(), F_SETLK, &lock);
  std::uint64_t times = 0;
  if (read(timer_.get(), &times, sizeof times) == static_cast<ssize_t>(sizeof times)) kill();
  lock.l_type = F_UNLCK;
  fcntl(lock_.get(), F_SETLK, &lock);
}

}  // namespace ddp::launcher
