// SPDX-License-Identifier: BSD-3-Clause
// --event-log-file: the records that torchrun's --event-log-handler gives, as JSON lines of the same shape.
//
//     AGENT   RENDEZVOUS (with its duration) in each round; SUCCEEDED or FAILED at the end
//     WORKER  START, then SUCCEEDED, FAILED, or TERMINATED (ended because ddprun told it to), in each round
//
// What torchrun says otherwise, by its own account faults: timestamp is always 0, the ends of workers are told of the
// last round only, a killed sibling is FAILED, and the agent SUCCEEDED also if its workers failed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

class EventLog {
 public:
  struct Job {
    std::string run_id;
    std::string role;
    std::string host;
    std::string rdzv_backend;
    std::string entry_point;
  };
  // write: takes a line without its newline; empty: nobody reads them, and none is made.
  EventLog(Job job, std::function<void(std::string)> write);

  // The round that begins: until it ends all records are of it.
  void round(const rendezvous::Assignment& assignment);
  void worker_started(int local_rank, int pid);
  // failure: null if it succeeded.
  void worker_ended(int local_rank, int pid, const rendezvous::WorkerFailure* failure);
  // No process of the round is left: the search for the next one begins.
  void round_ended();
  // error: empty if it succeeded.
  void agent_ended(const std::string& error);

 private:
  struct Worker {
    int local_rank;
    int pid;
    std::optional<int> exit_code;
  };
  void record(const char* source, const char* state, const std::optional<Worker>& worker,
              const std::optional<std::string>& raw_error, std::optional<std::chrono::microseconds> duration);

  using Clock = std::chrono::steady_clock;
  Job job_;
  std::function<void(std::string)> write_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point waiting_since_ = started_;
  std::optional<rendezvous::Assignment> assignment_;  // none before the first round
};

}  // namespace ddp::launcher
