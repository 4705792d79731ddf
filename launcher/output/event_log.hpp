// SPDX-License-Identifier: BSD-3-Clause
// Writes --event-log-file: the records of torchrun's --event-log-handler, as JSON lines of the same
// shape.
//
//     AGENT   RENDEZVOUS (with its duration) in each round; SUCCEEDED or FAILED at the end
//     WORKER  START, then SUCCEEDED, FAILED, or TERMINATED (ended because ddprun told it to), in each round
//     COORDINATOR  JOINED, REFUSED or LEFT, about another node; on the coordinator's node only. torchrun has none of
//     these.
//
// torchrun's records differ in four points, which are faults by torchrun's own account: the
// timestamp is always 0, the ends of workers are recorded for the last round only, a worker that
// was killed because another failed is FAILED, and the agent SUCCEEDED even if its workers failed.
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
  // `write` takes a line without its newline. If it is empty, no records are made.
  EventLog(Job job, std::function<void(std::string)> write);

  // Begins a round, to which all records until round_ended() belong.
  void round(const rendezvous::Assignment& assignment);
  void worker_started(int local_rank, int pid);
  // `failure` is null if the worker succeeded.
  void worker_ended(int local_rank, int pid, const rendezvous::WorkerFailure* failure);
  // Ends a round, when no process of it is left; the rendezvous for the next round begins.
  void round_ended();
  // Another node, as the coordinator on this node sees it. `proof` is what it has proved: "secret", "munge" or "none".
  struct OtherNode {
    std::string host;  // empty if it was refused before it said so
    std::string address;
    std::string proof;
    std::string why;  // empty if it joined
  };
  // Any thread may call it.
  void node(const char* state, const OtherNode& node) const;
  // `error` is empty if the job succeeded.
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
