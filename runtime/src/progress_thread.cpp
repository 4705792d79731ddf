// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/progress_thread.hpp"

#include <utility>

#include "runtime/src/service_thread.hpp"

namespace ddp::runtime {

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = start_service_thread("ddp-progress", [this] { run(); });
    }
  }
  changed_.notify_all();
}

void ProgressThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace ddp::runtime
