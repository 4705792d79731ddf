// SPDX-License-Identifier: BSD-3-Clause
// Some of Gloo's calls to libc come to this file, because the module is opened with RTLD_DEEPBIND and exports their
// names. They are found by libgloo only, which is opened with it, and by nothing else in the process. Where that does
// not work (under sanitizers, or if libgloo was loaded before), Gloo is slower, as it is by itself.
#include "collectives/gloo/device.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "rendezvous/base/thread.hpp"

namespace ddp::collectives {
namespace {

// How long a caller needs before it starts waiting. If it takes longer, one of the next rounds wakes it.
constexpr long kFirstRoundNs = 20'000;
constexpr long kNextRoundNs = 500'000;
constexpr int kRounds = 4;

// All devices of this process, since epoll_ctl() cannot tell which one a descriptor belongs to. Never destroyed: Gloo's
// threads may outlive static objects.
struct Devices {
  std::mutex mutex;
  std::vector<GlooDevice*> all;
};
Devices& devices() {
  static auto* const known = new Devices;
  return *known;
}

}  // namespace

GlooDevice::GlooDevice(const char* numeric_address) : GlooDevice() {  // from here on, the destructor cleans up
  {
    const rendezvous::AsynchronousSignalsBlocked blocked;
    device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(numeric_address));
  }
  timer_ = rendezvous::Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) return;
  // Edge-triggered, so that no one has to read the timer.
  constexpr auto kEvents = static_cast<int>(EPOLLIN | EPOLLET);
  static_cast<gloo::transport::tcp::Device&>(*device_).registerDescriptor(timer_.get(), kEvents, this);
  const std::lock_guard lock(devices().mutex);
  devices().all.push_back(this);
}

GlooDevice::~GlooDevice() {
  if (!timer_) return;
  {
    const std::lock_guard lock(devices().mutex);
    std::erase(devices().all, this);
  }
  if (device_.use_count() > 1) {
    static_cast<gloo::transport::tcp::Device&>(*device_).unregisterDescriptor(timer_.get(), this);
  } else {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    set_timer(kFirstRoundNs, kNextRoundNs);
  }
  device_.reset();  // ends the thread, before the timer is closed
}

void GlooDevice::wake_loop() {
  const std::lock_guard lock(mutex_);
  rounds_ = kRounds;
  set_timer(kFirstRoundNs, kNextRoundNs);
}

// Called once per round of the event loop.
void GlooDevice::handleEvents(int /*events*/) {
  const std::lock_guard lock(mutex_);
  if (!ending_ && --rounds_ <= 0) set_timer(0, 0);
}

void GlooDevice::set_timer(long first_ns, long then_ns) const {
  itimerspec time = {};
  time.it_value.tv_nsec = first_ns;
  time.it_interval.tv_nsec = then_ns;
  timerfd_settime(timer_.get(), 0, &time, nullptr);
}

}  // namespace ddp::collectives

// ---- The functions that libgloo calls in place of libc's ----

// Gloo's thread tries to take a connection's lock. If another thread holds it, Gloo's thread returns to epoll_wait,
// which returns at once, since the event is still pending. If the holder waits for the same CPU, Gloo's thread spins
// until its time slice is over: milliseconds for each connection of a mesh where ranks outnumber CPUs. So a thread that
// finds the lock taken yields first.
extern "C" __attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static const auto libc_trylock =
      reinterpret_cast<decltype(&pthread_mutex_trylock)>(dlsym(RTLD_NEXT, "pthread_mutex_trylock"));
  const int result = libc_trylock(mutex);
  if (result == EBUSY) sched_yield();
  return result;
}

// Gloo removes a descriptor from epoll before it closes the connection, and then waits for the next round of the loop.
extern "C" __attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int fd,
                                                                epoll_event* event) noexcept {
  static const auto libc_epoll_ctl = reinterpret_cast<decltype(&epoll_ctl)>(dlsym(RTLD_NEXT, "epoll_ctl"));
  const int result = libc_epoll_ctl(epoll, operation, fd, event);
  if (result == 0 && operation == EPOLL_CTL_DEL) {
    auto& devices = ddp::collectives::devices();
    const std::lock_guard lock(devices.mutex);
    for (auto* device : devices.all) device->wake_loop();
  }
  return result;
}
