// SPDX-License-Identifier: BSD-3-Clause
// Waits for the launcher's report that ranks of this job died. A rank learns of deaths this way even if none of its
// connections broke: while it receives from a rank that lives, or waits for others to join. Each session has one thread
// and one connection to the store for it. The thread sleeps while it waits for the store's answer, so operations pay
// nothing. It also holds this process's liveness word.
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

// A failure as the launcher reports it.
struct ReportedFailure {
  std::string text;        // "rank 5 on node b was killed by SIGKILL"
  std::vector<int> ranks;  // the ranks of the job that died; empty if the launcher is too old to say
  bool concerns(const std::vector<int>& members) const;
};

class FailureWatch {
 public:
  // Calls `on_failure` at most once, on the watch's thread: a launcher reports one failure in the life of its workers.
  // `liveness_word`: see LivenessWord.
  FailureWatch(std::unique_ptr<rendezvous::Store> store, std::function<void(const ReportedFailure&)> on_failure,
               std::string liveness_word = "");
  ~FailureWatch();  // returns promptly, whatever the store does
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // Returns the failure reported so far or within `timeout`. May be called from any thread.
  std::optional<ReportedFailure> wait_for_failure(std::chrono::milliseconds timeout);

 private:
  void run();
  std::optional<ReportedFailure> wait_for_report();

  const std::unique_ptr<rendezvous::Store> store_;
  const std::function<void(const ReportedFailure&)> on_failure_;
  const std::string liveness_word_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // or no report can come any more
  std::optional<ReportedFailure> failure_;
  std::thread thread_;  // declared last: it uses all the others
};

}  // namespace ddp::runtime
