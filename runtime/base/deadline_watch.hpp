// SPDX-License-Identifier: BSD-3-Clause
// One thread that says when a deadline has passed. It sleeps until the earliest one and then asks those it watches;
// started by the first deadline. Saying that there is one more costs an atomic read, unless it is the earliest.
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

  // Who has deadlines.
  class Watched {
   public:
    // On the watch's thread: deals with what has passed, returns the earliest deadline still to come, or Time::max().
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
  // Returns once the watch has let go of it. Not from check_deadlines.
  void detach(Watched& watched);
  // One of those attached has a deadline at `deadline`, which check_deadlines would tell from now on.
  void expect(Time deadline);

 private:
  void run();
  Time ask_all();

  std::mutex asking_;  // held while those attached are asked
  std::vector<Watched*> watched_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Time> wakes_at_{Time::max()};  // what comes earlier has to wake the thread
  bool earlier_ = false;
  bool ending_ = false;
  std::thread thread_;
};

// For a backend that ends its waits by itself: some seconds after the deadline, for it is the watch that knows which
// operation is late.
inline std::int64_t backend_timeout_ms(DeadlineWatch::Time deadline) {
  const auto left = deadline - std::chrono::steady_clock::now() + std::chrono::seconds(5);
  return std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
}

}  // namespace ddp::runtime
