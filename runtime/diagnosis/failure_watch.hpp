// SPDX-License-Identifier: BSD-3-Clause
// Hears from the launcher that ranks of this job died, also where no connection of this rank's broke: while it waits in
// a receive for a rank that lives, or for others to join. One thread and one connection to the store a session; it
// sleeps in the store's answer, so that an operation pays nothing for it. Asleep it is this rank's own sign of life.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddp::rendezvous {
class Store;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

// What the launcher says of a failure.
struct ReportedFailure {
  std::string text;        // "rank 5 on node b was killed by SIGKILL"
  std::vector<int> ranks;  // that died, in the job; empty: the launcher is too old to say
  bool concerns(const std::vector<int>& members) const;
};

class FailureWatch {
 public:
  // on_failure: called at most once, on the watch's thread; a launcher has one failure to tell in the life of its
  // workers. liveness_word: see LivenessWord.
  FailureWatch(std::unique_ptr<rendezvous::Store> store, std::function<void(const ReportedFailure&)> on_failure,
               std::string liveness_word = "");
  ~FailureWatch();  // prompt, whatever the store does
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // What was heard by now, or is within `timeout`. From any thread.
  std::optional<ReportedFailure> wait_for_failure(std::chrono::milliseconds timeout);

 private:
  void run();
  std::optional<ReportedFailure> wait_for_report();

  const std::unique_ptr<rendezvous::Store> store_;
  const std::function<void(const ReportedFailure&)> on_failure_;
  const std::string liveness_word_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // or nothing more can come
  std::optional<ReportedFailure> failure_;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace ddp::runtime
