// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/deadline_watch.hpp"

#include "runtime/src/service_thread.hpp"

namespace ddp::runtime {

DeadlineWatch::~DeadlineWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

DeadlineWatch::Ticket DeadlineWatch::add(Time deadline, std::function<void()> passed) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket(deadline, ++last_id_);
  deadlines_.emplace(ticket, std::move(passed));
  if (!thread_.joinable()) {
    thread_ = start_service_thread("ddp-deadlines", [this] { run(); });
  } else if (deadline < sleeps_until_) {
    changed_.notify_all();
  }
  return ticket;
}

void DeadlineWatch::forget(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  deadlines_.erase(ticket);
}

void DeadlineWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (deadlines_.empty()) {
      sleeps_until_ = Time::max();
      changed_.wait(lock);
      continue;
    }
    const Time next = deadlines_.begin()->first.first;
    if (std::chrono::steady_clock::now() < next) {
      sleeps_until_ = next;
      changed_.wait_until(lock, next);
      continue;
    }
    const std::function<void()> passed = std::move(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
    lock.unlock();
    passed();
    lock.lock();
  }
}

}  // namespace ddp::runtime
