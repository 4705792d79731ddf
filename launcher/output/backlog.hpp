// SPDX-License-Identifier: BSD-3-Clause
// What a console has not been given yet of a stream that has a log file: a range of that file, and
// after it bytes that the file could not take. Only the latter are in memory. Used by the output
// thread only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/output/sink.hpp"

namespace ddp::launcher {

class Backlog {
 public:
  explicit Backlog(std::string path) : path_(std::move(path)) {}

  // Adds bytes that `log` has just written to the file at the path.
  void add(std::string_view bytes, const Sink& log);
  // Adds bytes that are in no file.
  void add_unwritten(std::string_view bytes) { in_memory_ += bytes; }

  bool is_empty() const { return size() == 0; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_) + gap_.size() + in_memory_.size(); }
  bool is_in_file() const { return in_memory_.empty(); }
  std::size_t lines_in_file() const { return newlines_ + (ends_within_line_ ? 1 : 0); }
  std::size_t lines_in_memory() const;

  // Removes and returns the next bytes, at most `most` if they are in the file. If the file does
  // not have them any more, what is returned instead is a line that says so.
  std::string take(std::size_t most);

 private:
  std::string read_file(std::size_t most);
  // Drops the range; take() returns the line about it.
  void lose_range(const std::string& why);

  std::string path_;
  dev_t device_ = 0;  // the file's, to recognize another one at its path
  ino_t inode_ = 0;
  off_t begin_ = 0, end_ = 0;      // the range in the file
  std::size_t newlines_ = 0;       // in the range
  bool ends_within_line_ = false;  // whether the range has no newline at its end
  std::string gap_;                // text about what was lost
  bool is_within_line_ = false;    // whether what was taken last has no newline at its end
  std::string in_memory_;
};

}  // namespace ddp::launcher
