// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::launcher {

namespace {

bool is_socket(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

// Opens the same pipe or terminal once more, non-blocking; returns -1 if that is impossible.
// O_NONBLOCK on `fd` itself would apply to the shell and all other processes that share it. A file
// is not opened again: it never blocks, and a new descriptor would write from its start.
int open_without_blocking(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Sink::Sink(int fd, Kind kind, std::string name, Logger log)
    : fd_(fd),
      kind_(kind),
      name_(std::move(name)),
      log_(std::move(log)),
      is_terminal_(isatty(fd) != 0),
      owned_(kind == Kind::Console ? open_without_blocking(fd) : fd),
      is_socket_(is_socket(fd)) {}

void Sink::write(int writer, std::string_view text) {
  if (text.empty()) return;
  if (spared_ > 0 && !is_stuck()) write_gap();
  if (open_line_of_ && open_line_of_ != writer) put("\n");
  put(text);
  open_line_of_.reset();
  if (text.back() != '\n' && text.back() != '\r') open_line_of_ = writer;
}

void Sink::write_spare(int writer, std::string_view text) {
  if (is_stuck()) {
    spared_ += text.size();
  } else {
    write(writer, text);
  }
}

void Sink::write_gap() {
  if (open_line_of_) put("\n");
  open_line_of_.reset();
  put("[ddprun: " + name_ + " took nothing for a while; " + std::to_string(std::exchange(spared_, 0)) +
      " bytes are in the log files only]\n");
}

std::optional<Sink::Clock::time_point> Sink::stuck_at() const {
  return is_behind() ? std::optional(last_taken_ + kStuckAfter) : std::nullopt;
}

bool Sink::is_stuck() const { return is_behind() && Clock::now() >= *stuck_at(); }

void Sink::flush() {
  std::string_view rest = std::string_view(pending_).substr(flushed_);
  const Rest left = try_to_put(rest);
  flushed_ = left == Rest::Later ? pending_.size() - rest.size() : pending_.size();
  if (is_behind()) return;
  pending_ = {};  // frees its memory too
  flushed_ = 0;
  if (spared_ > 0 && !gone_) write_gap();
}

void Sink::put(std::string_view text) {
  if (gone_) return;
  if (is_behind()) {
    pending_ += text;
    return;
  }
  if (missing_ > 0) {
    const std::string gap = "\n[ddprun: the disk was full, " + std::to_string(missing_) + " bytes are missing here]\n";
    std::string_view left = gap;
    if (try_to_put(left) == Rest::Lost) {
      missing_ += text.size();
      return;
    }
    missing_ = 0;
  }
  last_taken_ = Clock::now();
  const Rest rest = try_to_put(text);
  if (rest == Rest::Later) pending_ = text;
  if (rest == Rest::Lost) missing_ = text.size();
}

Sink::Rest Sink::try_to_put(std::string_view& text) {
  while (!text.empty()) {
    const ssize_t written = is_socket_ && kind_ == Kind::Console
                                ? send(writable_fd(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                : ::write(writable_fd(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      last_taken_ = Clock::now();
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Rest::Later;
    const int error = errno;
    gone_ = error != ENOSPC && error != EDQUOT && error != EFBIG;
    const bool has_no_reader = error == EPIPE || error == ECONNRESET || (error == EIO && is_terminal_);
    if (!has_no_reader) log_("cannot write to " + name_ + ": " + strerror(error) + "; the job goes on without it");
    return Rest::Lost;
  }
  return Rest::None;
}

}  // namespace ddp::launcher
