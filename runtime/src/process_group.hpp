// SPDX-License-Identifier: BSD-3-Clause
// The operations of one group: numbered in the order they are issued, run in that order, one at a time. A blocking
// operation runs on its caller's thread when its turn comes, an asynchronous one on the session's progress thread.
//
//     Alive --an operation fails, or its deadline passes--> Failing --the cause is known--> Dead
//
// A group is single-use after an error: the operation to blame fails with the cause, all later ones with
// ErrorCode::Aborted quoting it. In between (Failing) connections are closed, so that other ranks notice, and the store
// is asked once which worker failed.
//
// Threads: any, one issuing at a time. The session's progress thread and deadline watch call in as well.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/backend.h"
#include "rendezvous/error.hpp"
#include "runtime/src/deadline_watch.hpp"
#include "runtime/src/host_collectives.hpp"
#include "runtime/src/operation.hpp"
#include "runtime/src/progress_thread.hpp"

namespace ddp::runtime {

class ProcessGroup {
 public:
  using Milliseconds = std::chrono::milliseconds;

  struct Config {
    std::string name;
    int rank = 0;
    int size = 1;
    Milliseconds timeout{0};                     // of an operation that gives none
    const ddp_backend_table* backend = nullptr;  // null for a group of one
    ddp_backend_group* connection = nullptr;     // becomes this object's
    bool compare_fingerprints = true;
    // Who failed, as the launcher knows it; waits at most so long; empty if it does not know. Must not throw.
    std::function<std::string(Milliseconds)> ask_for_cause;
    // Leaves this rank's reason for the others, who only see a broken connection. Must not throw.
    std::function<void(const std::string&)> tell_cause;
  };

  ProcessGroup(Config config, ProgressThread& progress, DeadlineWatch& watch);
  ~ProcessGroup();  // drain() first, and stop the two threads
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const std::string& name() const { return config_.name; }
  int rank() const { return config_.rank; }
  int size() const { return config_.size; }
  GroupPlace place() const { return {config_.rank, config_.size}; }

  // timeout: from now to the end; 0 means the group's. Throw rendezvous::Error.
  void run(const Operation& operation, Milliseconds timeout);
  std::uint64_t issue(const Operation& operation, Milliseconds timeout);
  void wait(std::uint64_t sequence);
  bool wait_for(std::uint64_t sequence, Milliseconds timeout);

  // Makes all operations not yet ended fail with ErrorCode::Aborted and this reason.
  void abort(const std::string& reason);
  // Returns once nothing is in flight.
  void drain();
  bool alive();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { Alive, Failing, Dead };
  struct Issued {
    std::uint64_t sequence = 0;
    Operation operation;
    Clock::time_point deadline;
    Milliseconds timeout{0};
    DeadlineWatch::Ticket ticket;
  };
  struct Failure {
    rendezvous::ErrorCode code;
    std::string why;
  };

  std::uint64_t enqueue(const Operation& operation, Milliseconds timeout, std::unique_lock<std::mutex>& lock);
  void execute(std::uint64_t sequence);
  std::optional<Failure> perform(const Issued& issued);
  std::optional<Failure> compare_fingerprints(const Issued& issued);
  std::optional<Failure> compare_counts(const Issued& issued);
  std::optional<Failure> gather_words(const Issued& issued, const void* mine, void* all, std::size_t count);
  std::optional<Failure> to_failure(ddp_backend_status status, const ddp_backend_error& error, const Issued& issued);
  Failure passed_deadline(const Issued& issued) const;
  void on_deadline(std::uint64_t sequence);
  void fail(std::unique_lock<std::mutex>& lock, std::uint64_t sequence, Failure failure);
  bool ended(std::uint64_t sequence) const;
  void check_issued(std::uint64_t sequence) const;
  void throw_if_failed(std::uint64_t sequence) const;
  const Issued* find(std::uint64_t sequence) const;
  std::string describe_here(std::uint64_t sequence) const;

  Config config_;
  ProgressThread& progress_;
  DeadlineWatch& watch_;
  std::optional<HostCollectives> host_;  // none in a group of one; the running operation's

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::Alive;
  std::deque<Issued> queue_;  // not ended yet; after a failure also those that never will
  std::uint64_t next_ = 1;
  std::uint64_t ended_ = 0;    // all up to this one succeeded
  std::uint64_t running_ = 0;  // 0: none
  std::uint64_t blamed_ = 0;   // the operation that failed first; 0: abort()
  std::optional<Failure> failure_;
  std::vector<Fingerprint> fingerprints_;  // of the running operation
};

}  // namespace ddp::runtime
