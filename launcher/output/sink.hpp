// SPDX-License-Identifier: BSD-3-Clause
// A sink is ddprun's stdout or stderr, or a log file. A sink that cannot be written never ends the
// job: the text is dropped, and that is logged. If the reader has gone (a closed pipe or terminal),
// nothing is logged. A file on a full disk continues when there is space again, with a line that
// says how much is missing.
//
// A console whose reader is slow is "behind": it keeps what was not taken yet, for flush(). It is
// "stuck" when nothing was taken for kStuckAfter. Where the descriptor cannot be written without
// blocking (see open_without_blocking), write() blocks instead, and the sink is never behind.
//
// Used by the output thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class Sink {
 public:
  using Logger = std::function<void(const std::string&)>;
  using Clock = std::chrono::steady_clock;

  // A console is stuck after this time without a byte taken.
  static constexpr std::chrono::seconds kStuckAfter{1};

  enum class Kind { Console, File };  // the sink closes a file's descriptor, and not a console's
  // `name` is used in messages.
  Sink(int fd, Kind kind, std::string name, Logger log);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  bool is_terminal() const { return is_terminal_; }

  // Writes text of the writer with this number. If another writer left a line unfinished, a newline
  // is written first.
  void write(int writer, std::string_view text);
  // Writes text that is in a log file too: a stuck console does not get it, and gets a line about
  // the gap afterwards.
  void write_spare(int writer, std::string_view text);
  // Returns whether the last text is an unfinished line of `writer`.
  bool has_open_line_of(int writer) const { return spared_ == 0 && open_line_of_ == writer; }

  // Returns the number of bytes that are kept for a slow reader.
  std::size_t pending() const { return pending_.size() - flushed_; }
  bool is_behind() const { return pending() > 0; }
  // Returns the time from which the sink is stuck if nothing is taken until then; nothing if it is
  // not behind.
  std::optional<Clock::time_point> stuck_at() const;
  bool is_stuck() const;
  // Returns the descriptor that epoll reports as writable when flush() can go on.
  int writable_fd() const { return owned_ ? owned_.get() : fd_; }
  void flush();

 private:
  enum class Rest { None, Later, Lost };
  void put(std::string_view text);
  // Writes as much as the descriptor takes, and removes that from the front of `text`.
  Rest try_to_put(std::string_view& text);
  void write_gap();

  int fd_;
  Kind kind_;
  std::string name_;
  Logger log_;
  bool is_terminal_;
  rendezvous::Descriptor owned_;  // a file's fd_, or the console, opened again without blocking; else none
  bool is_socket_;
  bool gone_ = false;
  std::size_t missing_ = 0;  // bytes dropped since the disk was full
  std::size_t spared_ = 0;   // bytes left out since the console was stuck
  std::string pending_;
  std::size_t flushed_ = 0;  // bytes of pending_ that are written
  Clock::time_point last_taken_;
  std::optional<int> open_line_of_;
};

}  // namespace ddp::launcher
