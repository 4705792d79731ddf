// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/deadline_watch.hpp"

#include <algorithm>

#include "rendezvous/base/thread.hpp"

namespace ddp::runtime {

DeadlineWatch::~DeadlineWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeadlineWatch::attach(Watched& watched) {
  const std::lock_guard lock(asking_);
  watched_.push_back(&watched);
}

void DeadlineWatch::detach(Watched& watched) {
  const std::lock_guard lock(asking_);
  watched_.erase(std::remove(watched_.begin(), watched_.end(), &watched), watched_.end());
}

void DeadlineWatch::expect(Time deadline) {
  if (deadline >= wakes_at_.load()) return;
  const std::lock_guard lock(mutex_);
  earlier_ = true;
  if (!thread_.joinable()) thread_ = rendezvous::start_thread("ddp-deadlines", [this] { run(); });
  changed_.notify_all();
}

void DeadlineWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    earlier_ = false;
    // Every deadline added from here on counts as the earliest and sets earlier_, so none is missed until wakes_at_ is
    // set.
    wakes_at_ = Time::max();
    lock.unlock();
    const Time next = ask_all();
    lock.lock();
    wakes_at_ = next;
    const auto disturbed = [this] { return ending_ || earlier_; };
    if (next == Time::max()) {
      changed_.wait(lock, disturbed);
    } else {
      changed_.wait_until(lock, next, disturbed);
    }
  }
}

DeadlineWatch::Time DeadlineWatch::ask_all() {
  const std::lock_guard lock(asking_);
  const Time now = std::chrono::steady_clock::now();
  Time next = Time::max();
  for (Watched* watched : watched_) next = std::min(next, watched->check_deadlines(now));
  return next;
}

}  // namespace ddp::runtime
