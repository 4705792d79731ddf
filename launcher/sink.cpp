// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/sink.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::launcher {

Sink::Sink(int fd, Descriptor descriptor, std::string name, Warn warn)
    : fd_(fd), descriptor_(descriptor), name_(std::move(name)), warn_(std::move(warn)), is_terminal_(isatty(fd) != 0) {}

Sink::~Sink() {
  if (descriptor_ == Descriptor::Owned) close(fd_);
}

void Sink::write(int writer, std::string_view text) {
  if (text.empty()) return;
  if (open_line_of_ && open_line_of_ != writer) put("\n");
  put(text);
  open_line_of_.reset();
  if (text.back() != '\n' && text.back() != '\r') open_line_of_ = writer;
}

void Sink::put(std::string_view text) {
  if (gone_) return;
  if (missing_ > 0) {
    const std::string gap = "\n[ddprun: the disk was full, " + std::to_string(missing_) + " bytes are missing here]\n";
    if (!try_to_put(gap).empty()) {
      missing_ += text.size();
      return;
    }
    missing_ = 0;
  }
  missing_ = try_to_put(text).size();
}

// Returns what was not taken.
std::string_view Sink::try_to_put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      pollfd ready = {fd_, POLLOUT, 0};  // somebody made the console non-blocking
      poll(&ready, 1, -1);
      continue;
    }
    const int error = errno;
    gone_ = error != ENOSPC && error != EDQUOT && error != EFBIG;
    const bool has_no_reader = error == EPIPE || (error == EIO && is_terminal_);
    if (!has_no_reader) warn_("cannot write to " + name_ + ": " + strerror(error) + "; the job goes on without it");
    break;
  }
  return text;
}

}  // namespace ddp::launcher
