// SPDX-License-Identifier: BSD-3-Clause
// What text is written to: ddprun's stdout or stderr, or a log file. A sink that takes no more never ends the job: what
// it does not take is dropped, and said. A reader that has gone (a closed pipe or terminal) is left in silence; a file
// on a full disk goes on where there is room again, with a line that says how much is missing.
//
// A console whose reader is slow is behind: it keeps what was not taken yet, for flush(). When nothing was taken for a
// while it is stuck. Where the descriptor cannot be written without blocking (see open_without_blocking) write blocks
// instead, and it is never behind.
//
// Used by the output thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

class Sink {
 public:
  using Logger = std::function<void(const std::string&)>;
  using Clock = std::chrono::steady_clock;

  // After so long without a byte taken, a console is stuck.
  static constexpr std::chrono::seconds kStuckAfter{1};

  // `name`: for warnings.
  enum class Kind { Console, File };  // a file's descriptor is the sink's own
  Sink(int fd, Kind kind, std::string name, Logger log);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  bool is_terminal() const { return is_terminal_; }

  // A part of a line that another writer left open is ended first. Writers have numbers.
  void write(int writer, std::string_view text);
  // The same, of text that is in a log file too: a stuck console is spared it, and tells of the gap afterwards.
  void write_spare(int writer, std::string_view text);
  // Is the line that `writer` began still open?
  bool has_open_line_of(int writer) const { return spared_ == 0 && open_line_of_ == writer; }

  // Bytes that are kept for a slow reader.
  std::size_t pending() const { return pending_.size() - flushed_; }
  bool is_behind() const { return pending() > 0; }
  // When it will be stuck if nothing is taken until then; nullopt: it is not behind.
  std::optional<Clock::time_point> stuck_at() const;
  bool is_stuck() const;
  // What can be watched with epoll to know when flush() will get on.
  int writable_fd() const { return out_; }
  void flush();

 private:
  enum class Rest { None, Later, Lost };
  void put(std::string_view text);
  // Takes from the front of `text` what it could write.
  Rest try_to_put(std::string_view& text);
  void write_gap();

  int fd_;
  Kind kind_;
  std::string name_;
  Logger log_;
  bool is_terminal_;
  int out_;  // fd_, or the same console opened so that it does not block
  bool is_socket_;
  bool gone_ = false;
  std::size_t missing_ = 0;  // bytes since the disk was full
  std::size_t spared_ = 0;   // bytes since the console was stuck
  std::string pending_;
  std::size_t flushed_ = 0;  // of pending_
  Clock::time_point last_taken_;
  std::optional<int> open_line_of_;
};

}  // namespace ddp::launcher
