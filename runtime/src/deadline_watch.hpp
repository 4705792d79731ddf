// SPDX-License-Identifier: BSD-3-Clause
// One thread that says when a deadline has passed. It sleeps until the earliest one; started by the first.
//
// Deadlines come and go with every operation and hardly ever pass, so neither allocates once a few were there, nor
// wakes the thread: it sleeps on for a deadline that was forgotten, and looks again when that one would have passed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <utility>

namespace ddp::runtime {

class DeadlineWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ticket = std::pair<Time, std::uint64_t>;

  DeadlineWatch() = default;
  ~DeadlineWatch();
  DeadlineWatch(const DeadlineWatch&) = delete;
  DeadlineWatch& operator=(const DeadlineWatch&) = delete;

  // Calls passed() once, on the watch's own thread, unless forgotten before. It must not throw, and may still be
  // running when forget() returns: it has to look again whether the deadline matters.
  Ticket add(Time deadline, std::function<void()> passed);
  void forget(const Ticket& ticket);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::map<Ticket, std::function<void()>> deadlines_{&memory_};
  Time sleeps_until_ = Time::max();
  std::uint64_t last_id_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ddp::runtime
