// SPDX-License-Identifier: BSD-3-Clause
// A thread that notices passed deadlines. It sleeps until the earliest one and then asks every attached object. The
// first deadline starts it. Announcing a deadline costs an atomic read, unless it is the earliest.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ddp::runtime {

class DeadlineWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // An object that has deadlines.
  class Watched {
   public:
    // Handles passed deadlines and returns the earliest one still to come, or Time::max(). Runs on the watch's thread.
    // Must not throw.
    virtual Time check_deadlines(Time now) = 0;

   protected:
    ~Watched() = default;
  };

  DeadlineWatch() = default;
  ~DeadlineWatch();
  DeadlineWatch(const DeadlineWatch&) = delete;
  DeadlineWatch& operator=(const DeadlineWatch&) = delete;

  void attach(Watched& watched);
  // Returns once the watch does not use the object any more. Must not be called from check_deadlines.
  void detach(Watched& watched);
  // Announces a deadline of an attached object, which its check_deadlines knows from now on.
  void expect(Time deadline);

 private:
  void run();
  Time ask_all();

  std::mutex asking_;  // held while attached objects are asked
  std::vector<Watched*> watched_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Time> wakes_at_{Time::max()};  // an earlier deadline has to wake the thread
  bool earlier_ = false;
  bool ending_ = false;
  std::thread thread_;
};

// Returns the timeout to give a backend that ends its waits by itself: some seconds after the deadline, since the watch
// is to notice it first and knows which operation is late.
inline std::int64_t backend_timeout_ms(DeadlineWatch::Time deadline,
                                       DeadlineWatch::Time now = std::chrono::steady_clock::now()) {
  const auto left = deadline - now + std::chrono::seconds(5);
  return std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
}

}  // namespace ddp::runtime
