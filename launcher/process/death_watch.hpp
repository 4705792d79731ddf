// SPDX-License-Identifier: BSD-3-Clause
// Tells that a worker dies while the kernel is still taking it apart. waitpid tells when that is done, some 70 ms
// later for each GiB of its memory.
//
//     worker of libddp    shows a liveness word (liveness_words.hpp): it is looked at when that is lost, at once
//     any other, large    is looked at every `interval`: nothing in Linux tells an ordinary user of it unasked
//     any other, small    is soon taken apart: nobody looks, waitpid tells
//
// So a job of small workers, or of libddp's, is not polled, but for a look at their sizes now and then. All calls come
// from io's thread, and so do the callbacks.
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
    // Once for a worker, with what waitpid will tell of it. A worker that ends with 0 is left to waitpid.
    std::function<void(int local_rank, int wait_status)> dying;
    // From now on it is looked at.
    std::function<void(int local_rank)> large;
  };

  DeathWatch(rendezvous::asio::io_context& io, int workers, std::chrono::milliseconds interval, Callbacks callbacks);

  // What a worker is told, so that it can show a liveness word (contract::kLivenessWord); empty: nothing.
  std::string liveness_word_of(int local_rank) const { return words_.of_worker(local_rank); }

  // A worker, child of this process, has taken this place.
  void watch(int local_rank, pid_t pid);
  // It is reaped: its pid may be anybody's.
  void forget(int local_rank);
  // Nothing is told any more, and nothing keeps io running.
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
  // Does nothing if the poll is scheduled already.
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
