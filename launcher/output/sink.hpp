// SPDX-License-Identifier: BSD-3-Clause
// A sink is ddprun's stdout or stderr, or a log file. A sink that cannot be written never ends the
// job: the text is dropped, that is logged, and the lines are counted. If the reader has gone (a
// closed pipe or terminal), lines are not counted. A file on a full disk continues when
// there is space again, with a line that says how much is missing.
//
// A console whose reader is slow is "behind": it keeps what was not taken yet, for flush(). It does
// not limit how much that is; ConsoleFeed does.
//
// Used by the output thread only.
#pragma once

#include <sys/types.h>

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

  enum class Kind { Console, File };  // the sink closes a file's descriptor, and not a console's
  // `name` is used in messages.
  Sink(int fd, Kind kind, std::string name, Logger log);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  bool is_terminal() const { return is_terminal_; }
  // Returns the position in the file after the last write.
  off_t position() const;

  // Writes text of the writer with this number, which is also in the file at the path `copy`,
  // unless that is empty. If another writer left a line unfinished, a newline is written first.
  // Returns whether the text was written, or is kept for flush().
  bool write(int writer, std::string_view text, const std::string& copy = "");
  // Returns whether the last text is an unfinished line of `writer`.
  bool has_open_line_of(int writer) const { return open_line_of_ == writer; }

  // Returns the number of bytes that are kept for a slow reader.
  std::size_t pending() const { return pending_.size() - flushed_; }
  bool is_behind() const { return pending() > 0; }
  // Returns the descriptor that epoll reports as writable when flush() can go on.
  int writable_fd() const { return owned_ ? owned_.get() : fd_; }
  void flush();

  // Returns whether nothing can be written any more.
  bool is_gone() const { return gone_; }
  // Returns the number of lines that could not be written, and the last reason.
  std::size_t lost_lines() const { return lost_lines_; }
  const std::string& lost_why() const { return lost_why_; }

  // What was kept for flush().
  struct Pending {
    std::size_t lines_in_file = 0;
    std::string file{};
    std::size_t other_lines = 0;
  };
  // Forgets what was kept.
  Pending drop_pending();

 private:
  enum class Rest { None, Later, Lost };
  Rest put(std::string_view text, const std::string& copy = "");
  void keep(std::string_view text, const std::string& copy);
  // Writes as much as the descriptor takes, and removes that from the front of `text`.
  Rest try_to_put(std::string_view& text);
  ssize_t write_some(std::string_view text);
  void lose(std::string_view text);

  int fd_;
  Kind kind_;
  std::string name_;
  Logger log_;
  bool is_terminal_;
  rendezvous::Descriptor owned_;  // a file's fd_, or the console, opened again without blocking; else none
  mode_t type_;                   // the file's type, such as S_IFIFO
  bool gone_ = false;
  bool has_no_reader_ = false;
  std::size_t missing_ = 0;  // bytes dropped since the disk was full
  std::size_t lost_lines_ = 0;
  std::string lost_why_;
  std::string pending_;
  std::size_t flushed_ = 0;  // bytes of pending_ that are written
  std::size_t copied_ = 0;   // bytes at the front of pending_ that are in the file copy_ too
  std::string copy_;
  char last_byte_ = '\n';  // the last one that was written
  std::optional<int> open_line_of_;
};

}  // namespace ddp::launcher
