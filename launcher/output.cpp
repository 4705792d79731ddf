// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/error.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Clock = std::chrono::steady_clock;

// One of ddprun's own two streams.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd), is_terminal_(isatty(fd) != 0) {}
  bool is_terminal() const { return is_terminal_; }
  int fd() const { return fd_; }

  // Whole lines of `writer`; a part of a line that another writer left open is ended first.
  void write_text(const void* writer, std::string_view text) {
    if (text.empty()) return;
    if (open_line_of_ && open_line_of_ != writer) put("\n");
    put(text);
    open_line_of_ = text.back() == '\n' || text.back() == '\r' ? nullptr : writer;
  }

 private:
  void put(std::string_view text) {
    while (!text.empty() && !broken_) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written >= 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno == EAGAIN) {
        pollfd ready = {fd_, POLLOUT, 0};  // somebody made the console non-blocking
        poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        broken_ = true;  // closed pipe, full disk: the job goes on without this output
      }
    }
  }

  int fd_;
  bool is_terminal_;
  bool broken_ = false;
  const void* open_line_of_ = nullptr;
};

// One worker's stdout or stderr.
struct Stream {
  int fd = -1;
  int local_rank = 0;
  Sink* sink = nullptr;
  bool pass_through = false;
  bool keeps_tail = false;
  std::string held;              // the line that has no end yet
  std::deque<std::string> tail;  // whole lines, newest last
  std::string tail_rest;         // the newest, unfinished
};

void remember(Stream& stream, std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find_first_of("\r\n");
    stream.tail_rest.append(text.substr(0, end));
    if (stream.tail_rest.size() > 1000) stream.tail_rest.resize(1000);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
    if (!stream.tail_rest.empty()) stream.tail.push_back(std::exchange(stream.tail_rest, {}));
    if (stream.tail.size() > kTailLines) stream.tail.pop_front();
  }
}

}  // namespace

class Output::Thread {
 public:
  Thread() : sinks_{Sink(STDOUT_FILENO), Sink(STDERR_FILENO)} {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || wake_ < 0) {
      throw Error(ErrorCode::System, std::string("cannot make the output loop: ") + strerror(errno));
    }
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = nullptr}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
    thread_ = std::thread([this] { run(); });
  }

  // False: the thread is inside a write to a console that is stuck, and this object must outlive it.
  bool finish() {
    post(Request{.kind = Request::Kind::Quit});
    std::unique_lock lock(mutex_);
    if (!done_.wait_for(lock, kFinalFlush, [this] { return finished_; })) {
      thread_.detach();
      return false;
    }
    lock.unlock();
    thread_.join();
    close(epoll_);
    close(wake_);
    return true;
  }

  Sink& sink(Console console) { return sinks_[console == Console::Stdout ? 0 : 1]; }

  // Called before the round's workers exist, so nothing can be read yet.
  int add(Console console, int local_rank, bool pass_through) {
    Sink& target = sink(console);
    int ours = -1, theirs = -1;
    if (target.is_terminal()) {
      termios raw = {};
      tcgetattr(target.fd(), &raw);
      cfmakeraw(&raw);
      winsize size = {};
      ioctl(target.fd(), TIOCGWINSZ, &size);
      if (openpty(&ours, &theirs, nullptr, &raw, &size) != 0) ours = -1;
      if (ours >= 0) {
        fcntl(ours, F_SETFD, FD_CLOEXEC);
        fcntl(theirs, F_SETFD, FD_CLOEXEC);
      }
    } else {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) == 0) {
        ours = ends[0];
        theirs = ends[1];
      }
    }
    if (ours < 0) {
      throw Error(ErrorCode::System, "cannot open a stream for worker " + std::to_string(local_rank) + ": " +
                                         strerror(errno) + " (a limit on open files? see ulimit -n)");
    }
    fcntl(ours, F_SETFL, O_NONBLOCK);
    Request request{.kind = Request::Kind::Add};
    request.stream.fd = ours;
    request.stream.local_rank = local_rank;
    request.stream.sink = &target;
    request.stream.pass_through = pass_through;
    request.stream.keeps_tail = console == Console::Stderr;
    post(std::move(request));
    return theirs;
  }

  struct Request {
    enum class Kind { Add, Line, EndRound, Resize, Quit } kind;
    Stream stream{};                    // Add
    Console console = Console::Stderr;  // Line
    std::string text{};                 // Line
  };

  void post(Request request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
    }
    const std::uint64_t one = 1;
    const ssize_t ignored = write(wake_, &one, sizeof one);
    (void)ignored;
  }

  std::vector<std::vector<std::string>> end_round(std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    const auto before = rounds_ended_;
    lock.unlock();
    post(Request{.kind = Request::Kind::EndRound});
    lock.lock();
    done_.wait_for(lock, deadline, [&] { return rounds_ended_ != before; });
    return std::move(tails_);
  }

 private:
  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    bool quit = false;
    while (!quit) {
      std::array<epoll_event, 64> events;
      const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      // Ready streams come in the order in which they became ready: a worker's stdout line before its later stderr one.
      for (int i = 0; i < ready; ++i) {
        if (auto* stream = static_cast<Stream*>(events[static_cast<std::size_t>(i)].data.ptr)) read_once(*stream);
      }
      std::uint64_t count;
      const ssize_t ignored = read(wake_, &count, sizeof count);
      (void)ignored;
      quit = serve_requests();
    }
    const std::lock_guard lock(mutex_);
    finished_ = true;
    done_.notify_all();
  }

  bool serve_requests() {
    while (true) {
      Request request;
      {
        const std::lock_guard lock(mutex_);
        if (requests_.empty()) return false;
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      switch (request.kind) {
        case Request::Kind::Add: {
          Stream& stream = streams_.emplace_back(std::move(request.stream));
          epoll_event event = {.events = EPOLLIN, .data = {.ptr = &stream}};
          epoll_ctl(epoll_, EPOLL_CTL_ADD, stream.fd, &event);
          break;
        }
        case Request::Kind::Line:
          sink(request.console).write_text(this, request.text + "\n");
          break;
        case Request::Kind::EndRound:
          finish_streams();
          break;
        case Request::Kind::Resize:
          for (Stream& stream : streams_) {
            winsize size = {};
            if (stream.fd >= 0 && ioctl(stream.sink->fd(), TIOCGWINSZ, &size) == 0) {
              ioctl(stream.fd, TIOCSWINSZ, &size);
            }
          }
          break;
        case Request::Kind::Quit:
          finish_streams();
          return true;
      }
    }
  }

  // False: nothing more now (or ever: then the descriptor is closed).
  bool read_once(Stream& stream) {
    if (stream.fd < 0) return false;
    const ssize_t size = read(stream.fd, buffer_.data(), buffer_.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (size <= 0) {  // end of file; EIO is a pty's way to say so
      close(std::exchange(stream.fd, -1));
      return false;
    }
    take(stream, {buffer_.data(), static_cast<std::size_t>(size)});
    return true;
  }

  void take(Stream& stream, std::string_view text) {
    if (stream.keeps_tail) remember(stream, text);
    if (stream.pass_through) {
      stream.sink->write_text(&stream, text);
      return;
    }
    const auto end = text.find_last_of(stream.sink->is_terminal() ? "\r\n" : "\n");
    if (end != std::string_view::npos) {
      stream.held.append(text.substr(0, end + 1));
      stream.sink->write_text(&stream, stream.held);
      stream.held.clear();
      text.remove_prefix(end + 1);
    }
    stream.held.append(text);
    if (stream.held.size() > kMaxHeldBytes) stream.sink->write_text(&stream, std::exchange(stream.held, {}));
  }

  void finish_streams() {
    std::vector<std::vector<std::string>> tails;
    for (Stream& stream : streams_) {
      while (read_once(stream)) {
      }
      if (stream.fd >= 0) close(stream.fd);  // held open by a process that is not ours; what it says is lost
      stream.sink->write_text(&stream, stream.held);
      if (!stream.keeps_tail) continue;
      if (!stream.tail_rest.empty()) stream.tail.push_back(stream.tail_rest);
      const auto index = static_cast<std::size_t>(stream.local_rank);
      if (tails.size() <= index) tails.resize(index + 1);
      tails[index].assign(stream.tail.begin(), stream.tail.end());
    }
    streams_.clear();
    const std::lock_guard lock(mutex_);
    tails_ = std::move(tails);
    ++rounds_ended_;
    done_.notify_all();
  }

  int epoll_ = -1;
  int wake_ = -1;
  std::array<Sink, 2> sinks_;
  std::list<Stream> streams_;  // the thread's own; epoll points into it
  std::array<char, 65536> buffer_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::deque<Request> requests_;
  std::vector<std::vector<std::string>> tails_;
  std::uint64_t rounds_ended_ = 0;
  bool finished_ = false;

  std::thread thread_;  // last: it uses all of the above
};

Output::Output() : thread_(std::make_unique<Thread>()) {}

Output::~Output() {
  if (!thread_->finish()) static_cast<void>(thread_.release());  // the process is about to end
}

Output::WorkerEnds Output::open_worker(int local_rank, bool pass_through) {
  WorkerEnds ends;
  ends.stdout_fd = thread_->add(Console::Stdout, local_rank, pass_through);
  ends.stderr_fd = thread_->add(Console::Stderr, local_rank, pass_through);
  return ends;
}

void Output::write_line(Console console, std::string text) {
  thread_->post({.kind = Thread::Request::Kind::Line, .console = console, .text = std::move(text)});
}

std::vector<std::vector<std::string>> Output::end_round(std::chrono::milliseconds deadline) {
  return thread_->end_round(deadline);
}

void Output::resize() { thread_->post({.kind = Thread::Request::Kind::Resize}); }

}  // namespace ddp::launcher
