// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/peer_watch.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::collectives {
namespace {

constexpr std::uint64_t kEnd = 0;

void add(int events, int descriptor, std::uint64_t number, std::uint32_t wanted = EPOLLIN | EPOLLONESHOT) {
  epoll_event event = {};
  event.events = wanted;
  event.data.u64 = number;
  if (epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Failure(DDP_BACKEND_ERROR, std::string("watching the other ranks: epoll_ctl: ") + std::strerror(errno));
}

}  // namespace

std::shared_ptr<PeerWatch> PeerWatch::of_this_process() {
  static std::mutex mutex;
  static std::weak_ptr<PeerWatch> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<PeerWatch> watch = current.lock();
  if (watch == nullptr) current = watch = std::make_shared<PeerWatch>();
  return watch;
}

PeerWatch::PeerWatch() : events_(epoll_create1(EPOLL_CLOEXEC)), end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!events_ || !end_)
    throw Failure(DDP_BACKEND_ERROR, std::string("watching the other ranks: ") + std::strerror(errno));
  add(events_.get(), end_.get(), kEnd);
  std::promise<void> started;
  thread_ = rendezvous::start_thread("ddp-peers", [this, &started] {
    words_.adopt_this_thread();
    started.set_value();
    run();
  });
  started.get_future().wait();
}

PeerWatch::~PeerWatch() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

std::uint64_t PeerWatch::watch(rendezvous::Descriptor lifeline, std::function<void()> ended) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = next_++;
  add(events_.get(), lifeline.get(), number);
  const int descriptor = lifeline.get();
  watched_[number] = {std::move(lifeline), descriptor, std::move(ended)};
  return number;
}

std::uint64_t PeerWatch::watch_always(int descriptor, std::function<void()> serve) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = next_++;
  add(events_.get(), descriptor, number, EPOLLIN);
  watched_[number] = {{}, descriptor, std::move(serve)};
  return number;
}

void PeerWatch::forget(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(number);
  if (found == watched_.end()) return;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, found->second.descriptor, nullptr);
  watched_.erase(found);
}

void PeerWatch::run() {
  for (;;) {
    epoll_event event = {};
    if (epoll_wait(events_.get(), &event, 1, -1) < 1) continue;  // a signal
    if (event.data.u64 == kEnd) return;
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(event.data.u64);
    if (found != watched_.end()) found->second.ended();
  }
}

}  // namespace ddp::collectives
