// SPDX-License-Identifier: BSD-3-Clause
// Reports that a worker is dying while the kernel still frees its memory. waitpid reports it when
// that is done, some 70 ms later for each GiB.
//
//     uses libddp     holds a liveness word (liveness_words.hpp), and is checked as soon as that is lost
//     other, large    is polled every `interval`: Linux has no notification of this for an ordinary user
//     other, small    is freed quickly, so it is left to waitpid
//
// So a job of small workers, or of workers that use libddp, is polled for its workers' sizes only.
// All calls are made on io's thread, and so are the callbacks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/process/liveness_words.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class DeathWatch {
 public:
  struct Callbacks {
    // Called once for a worker that dies, with the status that waitpid will report. A worker that
    // ends with 0 is left to waitpid.
    std::function<void(int local_rank, int wait_status)> dying;
    // Called when a worker is found to be large; it is polled from now on.
    std::function<void(int local_rank)> large;
  };

  DeathWatch(rendezvous::asio::io_context& io, int workers, std::chrono::milliseconds interval, Callbacks callbacks);

  // Returns a worker's value of contract::kLivenessWord, which names its liveness word; empty if
  // there is none.
  std::string liveness_word_of(int local_rank) const { return words_.of_worker(local_rank); }

  // Starts to watch the worker with this local rank, a child of this process.
  void watch(int local_rank, pid_t pid);
  // Ends the watch of a worker that has been reaped: its pid may belong to another process now.
  void forget(int local_rank);
  // Ends all watches. No callback follows, and nothing here keeps io running.
  void stop();

 private:
  using Timer = rendezvous::asio::steady_timer;
  using Clock = std::chrono::steady_clock;

  struct Worker {
    explicit Worker(rendezvous::asio::io_context& io) : next_check(io) {}
    pid_t pid = 0;  // 0: none, or already reported as dying
    bool holds_word = false;
    bool is_large = false;
    Timer next_check;  // after its liveness word is lost
  };

  struct Poll {
    Timer timer;
    bool is_scheduled = false;
  };

  void wait_for_words();
  void on_word_held(int local_rank);
  void on_word_lost(int local_rank);
  void check_until_dead(int local_rank, pid_t pid, Clock::time_point lost_at);
  bool report_if_dying(int local_rank);
  void poll_sizes();
  void poll_large();
  void schedule_sizes();
  // Runs the poll after `pause`, unless it is scheduled already.
  void schedule(Poll& poll, std::chrono::milliseconds pause, void (DeathWatch::*run)());
  Worker& worker_at(int local_rank) { return workers_[static_cast<std::size_t>(local_rank)]; }
  int size() const { return static_cast<int>(workers_.size()); }

  rendezvous::asio::io_context& io_;
  const std::chrono::milliseconds interval_;
  const Callbacks callbacks_;
  std::vector<Worker> workers_;  // by local rank
  Poll sizes_, large_;
  rendezvous::asio::posix::stream_descriptor wake_up_;  // the pipe of words_
  LivenessWords words_;
};

}  // namespace ddp::launcher
