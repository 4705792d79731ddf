// SPDX-License-Identifier: BSD-3-Clause
// What text is written to: ddprun's stdout or stderr, or a log file. A sink that takes no more never ends the job: what
// it does not take is dropped, and said. A reader that has gone (a closed pipe or terminal) is left in silence; a file
// on a full disk goes on where there is room again, with a line that says how much is missing.
//
// Used by the output thread only; write may block.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

class Sink {
 public:
  using Warn = std::function<void(const std::string&)>;

  // `name`: for warnings. The descriptor is closed at the end if it is this sink's own.
  enum class Descriptor { Borrowed, Owned };
  Sink(int fd, Descriptor descriptor, std::string name, Warn warn);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return fd_; }
  bool is_terminal() const { return is_terminal_; }

  // A part of a line that another writer left open is ended first. Writers have numbers.
  void write(int writer, std::string_view text);
  // Is the line that `writer` began still open?
  bool has_open_line_of(int writer) const { return open_line_of_ == writer; }

 private:
  void put(std::string_view text);
  std::string_view try_to_put(std::string_view text);

  int fd_;
  Descriptor descriptor_;
  std::string name_;
  Warn warn_;
  bool is_terminal_;
  bool gone_ = false;
  std::size_t missing_ = 0;  // bytes since the disk was full
  std::optional<int> open_line_of_;
};

}  // namespace ddp::launcher
