// SPDX-License-Identifier: BSD-3-Clause
// Serves torch.distributed.elastic.timer: a FIFO, whose path the workers have in TORCHELASTIC_TIMER_FILE and into which
// their FileTimerClient writes a line for each timer that it acquires or releases. FileTimerCore decides which timers
// expire. Timers count from begin_round() to end_round(); lines that come at another time are dropped.
//
// All calls come from the thread that runs `io`, and so does the callback.
#pragma once

#include <functional>
#include <string>

#include "launcher/diagnosis/timers/file_timer_core.hpp"
#include "launcher/output/log.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class FileTimer {
 public:
  using OnExpired = std::function<void(const ExpiredTimers&)>;

  // Makes the FIFO, in place of one that a job left and nobody reads. Throws rendezvous::Error if it cannot be made.
  FileTimer(rendezvous::asio::io_context& io, std::string path, Log& log, OnExpired on_expired);
  // Removes the FIFO.
  ~FileTimer();
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  // To be called before a worker of the round exists.
  void begin_round();
  void end_round();
  // Forgets the timers of a process that has been reaped.
  void forget(pid_t pid);
  // Ends for good. Nothing here keeps io running.
  void stop();

 private:
  void wait_for_lines();
  void wait_for_expiry();
  void read_lines();
  void take_line(std::string_view line);
  void note_bad_line(std::string_view line);
  void expire();
  void set_alarm();

  const std::string path_;
  Log& log_;
  const OnExpired on_expired_;
  rendezvous::asio::posix::stream_descriptor fifo_;
  rendezvous::asio::posix::stream_descriptor alarm_;  // a timerfd on the wall clock, which follows when that is set
  FileTimerCore core_;
  std::string unfinished_;  // a line of which only the beginning has come
  bool in_round_ = false;
  bool has_logged_bad_line_ = false;  // in this round
};

}  // namespace ddp::launcher
