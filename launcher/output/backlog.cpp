// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/backlog.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/text/lines.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

void Backlog::add(std::string_view bytes, const Sink& log) {
  const off_t end = log.position();
  const off_t begin = end - static_cast<off_t>(bytes.size());
  if (begin_ != end_ && begin != end_) lose_range("it was truncated");
  if (begin_ == end_) {
    struct stat status = {};
    fstat(log.fd(), &status);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    begin_ = begin;
  }
  end_ = end;
  newlines_ += count_newlines(bytes);
  ends_within_line_ = bytes.back() != '\n';
}

std::size_t Backlog::lines_in_memory() const { return count_lines(in_memory_); }

std::string Backlog::take(std::size_t most) {
  std::string bytes = std::exchange(gap_, {});
  if (bytes.empty() && begin_ < end_) bytes = read_file(most);
  if (bytes.empty() && begin_ == end_) bytes = std::exchange(gap_.empty() ? in_memory_ : gap_, {});
  if (!bytes.empty()) is_within_line_ = bytes.back() != '\n';
  return bytes;
}

// The file is opened for each read, since it may be one of many rounds' files, and descriptors are
// for the workers.
std::string Backlog::read_file(std::size_t most) {
  const rendezvous::Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!file || fstat(file.get(), &status) != 0) {
    lose_range(strerror(errno));
    return "";
  }
  if (status.st_dev != device_ || status.st_ino != inode_) {
    lose_range("it is another file now");
    return "";
  }
  std::string bytes(std::min(most, static_cast<std::size_t>(end_ - begin_)), '\0');
  const ssize_t size = pread(file.get(), bytes.data(), bytes.size(), begin_);
  if (size <= 0) {
    lose_range(size == 0 ? "it was truncated" : strerror(errno));
    return "";
  }
  bytes.resize(static_cast<std::size_t>(size));
  begin_ += size;
  newlines_ -= std::min(newlines_, count_newlines(bytes));
  if (begin_ == end_) ends_within_line_ = false;
  return bytes;
}

void Backlog::lose_range(const std::string& why) {
  if (is_within_line_ && gap_.empty()) gap_ = "\n";
  gap_ += "[ddprun: " + lines_in_words(lines_in_file()) + " (" + std::to_string(end_ - begin_) +
          " bytes) cannot be shown here: " + path_ + ": " + why + "]\n";
  begin_ = end_ = 0;
  newlines_ = 0;
  ends_within_line_ = false;
}

}  // namespace ddp::launcher
