// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "launcher/text/lines.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kTerminalPiece = 256;
constexpr int kNoWriter = -1;

mode_t type_of(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

// Opens the same pipe or terminal once more, non-blocking; returns -1 if that is impossible (it
// belongs to another user). O_NONBLOCK on `fd` itself would apply to the shell and all other
// processes that share it. A file is not opened again: it never blocks, and a new descriptor would
// write from its start.
int open_without_blocking(int fd) {
  const mode_t type = type_of(fd);
  if (type != S_IFIFO && type != S_IFCHR) return -1;
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
      type_(type_of(fd)) {}

off_t Sink::position() const { return lseek(fd_, 0, SEEK_CUR); }

bool Sink::write(int writer, std::string_view text, const std::string& copy) {
  if (text.empty()) return true;
  if (open_line_of_ && open_line_of_ != writer) put("\n", copy);
  const Rest rest = put(text, copy);
  open_line_of_.reset();
  if (text.back() != '\n' && text.back() != '\r') open_line_of_ = writer;
  return rest != Rest::Lost;
}

void Sink::flush() {
  std::string_view rest = std::string_view(pending_).substr(flushed_);
  const Rest left = try_to_put(rest);
  if (left == Rest::Lost) lose(rest);
  flushed_ = left == Rest::Later ? pending_.size() - rest.size() : pending_.size();
  if (!is_behind()) drop_pending();
}

Sink::Pending Sink::drop_pending() {
  Pending dropped = {.file = std::exchange(copy_, {})};
  const std::string_view text = pending_;
  const std::size_t copied = std::max(copied_, flushed_);
  dropped.lines_in_file = count_lines(text.substr(flushed_, copied - flushed_));
  dropped.other_lines = count_lines(text.substr(copied));
  // What is to be dropped may begin within a line.
  if (is_behind()) open_line_of_ = last_byte_ == '\n' ? std::nullopt : std::optional(kNoWriter);
  pending_ = {};  // frees its memory too
  flushed_ = copied_ = 0;
  return dropped;
}

Sink::Rest Sink::put(std::string_view text, const std::string& copy) {
  if (gone_) {
    lose(text);
    return Rest::Lost;
  }
  if (is_behind()) {
    keep(text, copy);
    return Rest::Later;
  }
  if (missing_ > 0) {
    const std::string gap = "\n[ddprun: the disk was full, " + std::to_string(missing_) + " bytes are missing here]\n";
    std::string_view left = gap;
    if (try_to_put(left) == Rest::Lost) {
      lose(text);
      return Rest::Lost;
    }
    missing_ = 0;
  }
  const Rest rest = try_to_put(text);
  if (rest == Rest::Later) keep(text, copy);
  if (rest == Rest::Lost) lose(text);
  return rest;
}

void Sink::keep(std::string_view text, const std::string& copy) {
  const bool has_copy = !copy.empty() && copied_ == pending_.size() && (copy_.empty() || copy_ == copy);
  pending_ += text;
  if (!has_copy) return;
  copied_ = pending_.size();
  copy_ = copy;
}

void Sink::lose(std::string_view text) {
  if (has_no_reader_) return;
  missing_ += text.size();
  lost_lines_ += count_lines(text);
}

Sink::Rest Sink::try_to_put(std::string_view& text) {
  while (!text.empty()) {
    const ssize_t written = write_some(text);
    if (written > 0) last_byte_ = text[static_cast<std::size_t>(written) - 1];
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Rest::Later;
    const int error = errno;
    gone_ = error != ENOSPC && error != EDQUOT && error != EFBIG;
    has_no_reader_ = error == EPIPE || error == ECONNRESET || (error == EIO && is_terminal_);
    if (has_no_reader_) {
      log_("nobody reads " + name_ + " any more; the job goes on without it");
      return Rest::Lost;
    }
    lost_why_ = strerror(error);
    log_("cannot write to " + name_ + ": " + lost_why_ + "; the job goes on without it");
    return Rest::Lost;
  }
  return Rest::None;
}

// Writes as ::write() does, but a console never blocks.
ssize_t Sink::write_some(std::string_view text) {
  if (kind_ == Kind::File || owned_) return ::write(writable_fd(), text.data(), text.size());
  if (type_ == S_IFSOCK) return send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (type_ != S_IFIFO && type_ != S_IFCHR) return ::write(fd_, text.data(), text.size());
  // The descriptor blocks, and could not be opened again. Where poll() says that it can be written,
  // a pipe takes PIPE_BUF bytes, and a terminal takes some.
  pollfd ready = {fd_, POLLOUT, 0};
  if (poll(&ready, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  const std::size_t most = type_ == S_IFIFO ? PIPE_BUF : kTerminalPiece;
  return ::write(fd_, text.data(), std::min(text.size(), most));
}

}  // namespace ddp::launcher
