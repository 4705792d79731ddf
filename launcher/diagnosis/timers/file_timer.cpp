// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/timers/file_timer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "launcher/process/process_tree.hpp"
#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;

namespace {

constexpr std::size_t kFifoHolds = 1 << 16;  // PyTorch's lines have 4 KiB at most
constexpr std::size_t kLineShown = 100;

[[noreturn]] void refuse(const std::string& path, const std::string& why, const std::string& what_to_do) {
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          "TORCHELASTIC_TIMER_FILE " + path + ": " + why + "; " + what_to_do);
}

// Removes a FIFO that nobody reads. torchrun removes whatever has this name.
void remove_old_fifo(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISFIFO(status.st_mode))
    refuse(path, "this exists and is no FIFO", "give the path of a file that does not exist");
  if (const Descriptor writer(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)); writer) {
    refuse(path, "another job uses it", "give each job on this machine a path of its own, or leave it out");
  }
  unlink(path.c_str());
}

int make_fifo(const std::string& path) {
  remove_old_fifo(path);
  // Opened for writing too, so that it has no end of file while no client has it open.
  const bool is_made = mkfifo(path.c_str(), 0600) == 0;
  const int fd = is_made ? open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (fd >= 0) return fd;
  const std::string why = strerror(errno);
  if (is_made) unlink(path.c_str());
  refuse(path, "cannot make a FIFO: " + why,
         "give a path in a folder that can be written (if it is not set, it is in TMPDIR), or do without timers: unset "
         "TORCHELASTIC_ENABLE_FILE_TIMER");
}

int make_alarm() {
  const int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
  if (fd >= 0) return fd;
  rendezvous::system_error("cannot make a timer");
}

}  // namespace

FileTimer::FileTimer(asio::io_context& io, std::string path, Log& log, OnExpired on_expired)
    : path_(std::move(path)), log_(log), on_expired_(std::move(on_expired)), fifo_(io), alarm_(io, make_alarm()) {
  fifo_.assign(make_fifo(path_));
  wait_for_lines();
  wait_for_expiry();
}

FileTimer::~FileTimer() { unlink(path_.c_str()); }

void FileTimer::begin_round() {
  end_round();
  read_lines();
  has_logged_bad_line_ = false;
  in_round_ = true;
}

void FileTimer::end_round() {
  in_round_ = false;
  unfinished_.clear();
  core_.clear();
  set_alarm();
}

void FileTimer::forget(pid_t pid) {
  core_.forget(pid);
  set_alarm();
}

void FileTimer::stop() {
  fifo_.close();
  alarm_.close();
}

void FileTimer::wait_for_lines() {
  fifo_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (error) return;
    read_lines();
    if (in_round_) expire();
    wait_for_lines();
  });
}

void FileTimer::wait_for_expiry() {
  alarm_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (error) return;
    std::uint64_t times;
    if (read(alarm_.native_handle(), &times, sizeof times) == sizeof times) {
      read_lines();  // a release that was written in time counts, even if this process comes late
      expire();
    }
    wait_for_expiry();
  });
}

// Takes what has been written, as much as a FIFO holds: a process that writes without end leaves time for the rest.
void FileTimer::read_lines() {
  char buffer[kFifoHolds];
  const ssize_t size = read(fifo_.native_handle(), buffer, sizeof buffer);
  if (size <= 0 || !in_round_) return;
  unfinished_.append(buffer, static_cast<std::size_t>(size));
  std::size_t begin = 0;
  for (std::size_t end; (end = unfinished_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take_line(std::string_view(unfinished_).substr(begin, end - begin));
  }
  unfinished_.erase(0, begin);
  if (unfinished_.size() > kFifoHolds) {
    note_bad_line(unfinished_);
    unfinished_.clear();
  }
}

void FileTimer::take_line(std::string_view line) {
  const std::optional<TimerRequest> request = parse_timer_request(line);
  if (!request) return note_bad_line(line);
  // A process that has ended meanwhile has no timers.
  if (const auto start_time = start_time_of(request->pid)) core_.take(*request, *start_time);
}

void FileTimer::note_bad_line(std::string_view line) {
  const std::string text = "a line in " + path_ +
                           " that is no request of torch.distributed.elastic.timer is ignored: " +
                           rendezvous::cut_line(rendezvous::printable(line.substr(0, kFifoHolds)), kLineShown);
  if (std::exchange(has_logged_bad_line_, true)) return log_.debug("timer", text);
  log_.warning("timer", text);
}

void FileTimer::expire() {
  for (const ExpiredTimers& timers : core_.expire(std::chrono::system_clock::now())) on_expired_(timers);
  set_alarm();
}

// Sets the alarm to the next expiry, or to none.
void FileTimer::set_alarm() {
  if (!alarm_.is_open()) return;
  itimerspec at = {};
  if (const auto next = core_.next()) at.it_value = rendezvous::to_timespec(*next);
  timerfd_settime(alarm_.native_handle(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace ddp::launcher
