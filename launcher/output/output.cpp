// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "launcher/output/sink.hpp"
#include "launcher/output/worker_stream.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using Clock = Sink::Clock;

constexpr std::size_t kMostInAPipe = 1 << 20;  // /proc/sys/fs/pipe-max-size
constexpr int kOwnLines = 0;                   // ddprun as a writer; workers' streams count from 1

// O_APPEND: whoever truncates the file while it is written gets no hole.
int open_log(const std::string& path, int flags = O_TRUNC) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
}

// The two ends of what a worker writes to and ddprun reads.
struct Ends {
  int ours = -1;
  int theirs = -1;
};

Ends open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  return {ends[0], ends[1]};
}

Ends open_pty(int terminal) {
  termios raw = {};
  tcgetattr(terminal, &raw);
  cfmakeraw(&raw);
  winsize size = {};
  ioctl(terminal, TIOCGWINSZ, &size);
  Ends ends;
  if (openpty(&ends.ours, &ends.theirs, nullptr, &raw, &size) != 0) return {};
  fcntl(ends.ours, F_SETFD, FD_CLOEXEC);
  fcntl(ends.theirs, F_SETFD, FD_CLOEXEC);
  return ends;
}

// Readable when one of the signals that are meant to end ddprun has come, and is blocked.
int open_end_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

// The output thread cannot be asked: it is the one that waits.
void say_what_is_lost() {
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  dprintf(STDERR_FILENO, "ddprun: stdout or stderr takes nothing any more; the end of the output is lost\n");
}

}  // namespace

class Output::Thread {
 public:
  explicit Thread(Sink::Warn warn)
      : warn_(std::move(warn)),
        sinks_{Sink(STDOUT_FILENO, Sink::Kind::Console, "stdout", warn_once()),
               Sink(STDERR_FILENO, Sink::Kind::Console, "stderr", warn_once())} {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    finished_ = eventfd(0, EFD_CLOEXEC);
    if (epoll_ < 0 || wake_ < 0 || finished_ < 0) {
      throw Error(ErrorCode::System, std::string("cannot make the output loop: ") + strerror(errno));
    }
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = this}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
    thread_ = std::thread([this] { run(); });
  }

  // False: a console is stuck, and this object must outlive the thread.
  bool finish() {
    progress_at_ = Clock::now();
    post(Request{.kind = Request::Kind::Quit});
    const int signals = open_end_signals();
    bool is_finished = false;
    while (!is_finished) {
      const auto left = progress_at_.load() + kFinalFlush - Clock::now();
      const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      pollfd wait[] = {{finished_, POLLIN, 0}, {signals, POLLIN, 0}};
      const int ready = milliseconds > 0 ? poll(wait, 2, static_cast<int>(milliseconds)) : 0;
      is_finished = ready > 0 && wait[0].revents != 0;
      if (milliseconds <= 0 || (ready > 0 && wait[1].revents != 0)) break;
    }
    if (signals >= 0) close(signals);
    if (!is_finished) {
      warned_ = true;  // there is nobody any more who would hear it
      thread_.detach();
      return false;
    }
    thread_.join();
    for (const int fd : {epoll_, wake_, finished_}) close(fd);
    return true;
  }

  void begin_round() { notify(wake_); }

  // Before the round's streams are opened.
  void filter(Console console, const std::string& path, const std::vector<std::string>& words) {
    auto file = open_sink(path);
    if (!file) return;
    queue(Request{.kind = Request::Kind::Filter, .console = console, .filter = {words, std::move(file)}});
  }

  // Called before the round's workers exist, so nothing can be read yet.
  int open_stream(StreamRoute route) {
    if (!route.shown && !route.file.empty()) {
      const int file = open_log(route.file);
      if (file >= 0) {
        queue(Request{.kind = Request::Kind::Stream, .route = std::move(route)});
        return file;
      }
      cannot_open(route.file);
      route.file.clear();
      route.shown = true;
    }
    std::unique_ptr<Sink> file;
    if (!route.file.empty()) file = open_sink(route.file);
    if (!file) route.file.clear();
    const Ends ends = open_ends(route);
    if (ends.theirs < 0) {
      throw Error(ErrorCode::System, "cannot open a stream for worker " + std::to_string(route.local_rank) + ": " +
                                         strerror(errno) + " (a limit on open files? see ulimit -n)");
    }
    if (ends.ours < 0) return ends.theirs;
    fcntl(ends.ours, F_SETFL, O_NONBLOCK);
    queue(Request{.kind = Request::Kind::Stream, .route = std::move(route), .fd = ends.ours, .file = std::move(file)});
    return ends.theirs;
  }

  void write_line(Console console, std::string text) {
    post(Request{.kind = Request::Kind::Line, .console = console, .text = std::move(text)});
  }

  void open_events(const std::string& path) {
    const int fd = open_log(path, 0);
    if (fd < 0) {
      throw Error(ErrorCode::System, "cannot open " + path + " (--event-log-file): " + strerror(errno));
    }
    post(Request{.kind = Request::Kind::Events,
                 .file = std::make_unique<Sink>(fd, Sink::Kind::File, path, warn_once())});
  }

  void write_event(std::string line) { post(Request{.kind = Request::Kind::Event, .text = std::move(line)}); }

  void resize() { post(Request{.kind = Request::Kind::Resize}); }

  std::vector<LastWords> end_round(std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    const auto before = rounds_ended_;
    lock.unlock();
    post(Request{.kind = Request::Kind::EndRound});
    lock.lock();
    done_.wait_for(lock, deadline, [&] { return rounds_ended_ != before; });
    return std::move(last_words_);
  }

 private:
  struct Request {
    enum class Kind { Filter, Stream, Line, Events, Event, EndRound, Resize, Quit } kind;
    Console console = Console::Stderr;  // Filter, Line
    LineFilter filter{};                // Filter
    StreamRoute route{};                // Stream
    int fd = -1;                        // Stream: our end
    std::unique_ptr<Sink> file{};       // Stream, Events
    std::string text{};                 // Line, Event
  };

  struct Reader {
    WorkerStream stream;
    int fd;  // -1: the worker holds its file itself, or has closed its end
    bool is_paused = false;
  };

  void queue(Request request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
  }
  void post(Request request) {
    queue(std::move(request));
    notify(wake_);
  }

  static void notify(int eventfd) {
    const std::uint64_t one = 1;
    const ssize_t ignored = write(eventfd, &one, sizeof one);
    (void)ignored;
  }

  Ends open_ends(const StreamRoute& route) {
    if (route.shown && route.lines != StreamRoute::Lines::Teed && sink(route.console).is_terminal()) {
      return open_pty(sink(route.console).fd());
    }
    if (route.shown || route.console == Console::Stderr) return open_pipe();
    return {.ours = -1, .theirs = open("/dev/null", O_WRONLY | O_CLOEXEC)};
  }

  // One full disk has many files.
  Sink::Warn warn_once() {
    return [this](const std::string& what) {
      if (!warned_.exchange(true)) warn_(what);
    };
  }

  void cannot_open(const std::string& path) {
    warn_once()("cannot open " + path + ": " + strerror(errno) + "; the job goes on without it");
  }

  std::unique_ptr<Sink> open_sink(const std::string& path) {
    const int fd = open_log(path);
    if (fd < 0) {
      cannot_open(path);
      return nullptr;
    }
    return std::make_unique<Sink>(fd, Sink::Kind::File, path, warn_once());
  }

  Sink& sink(Console console) { return sinks_[console == Console::Stdout ? 0 : 1]; }
  LineFilter& filter_of(Console console) { return filters_[console == Console::Stdout ? 0 : 1]; }

  void run() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    bool quit = false;
    while (!quit || is_behind()) {
      std::array<epoll_event, 64> events;
      const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), until_stuck());
      // Ready streams come in the order in which they became ready: a worker's stdout line before its later stderr one.
      bool has_requests = false;
      for (int i = 0; i < ready; ++i) {
        void* const source = events[static_cast<std::size_t>(i)].data.ptr;
        has_requests = has_requests || source == this;
        const auto console = std::find_if(sinks_.begin(), sinks_.end(), [&](Sink& sink) { return &sink == source; });
        if (console != sinks_.end()) {
          console->flush();
        } else if (source != this) {
          read_or_pause(*static_cast<Reader*>(source));
        }
      }
      if (has_requests) quit = serve_requests() || quit;
      watch_consoles();
      resume_readers();
      if (ready > 0) progress_at_ = Clock::now();
    }
    notify(finished_);
  }

  bool is_behind() const { return sinks_[0].is_behind() || sinks_[1].is_behind(); }

  // Milliseconds until a reader that waits for a console need wait no more; -1: none does.
  int until_stuck() const {
    std::optional<Clock::time_point> soonest;
    for (const Sink& sink : sinks_) {
      const auto at = paused_ > 0 && !sink.is_stuck() ? sink.stuck_at() : std::nullopt;
      if (at && (!soonest || *at < *soonest)) soonest = at;
    }
    if (!soonest) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*soonest - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  // A console is watched while it is behind.
  void watch_consoles() {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (is_watched_[i] == sinks_[i].is_behind()) continue;
      is_watched_[i] = !is_watched_[i];
      epoll_event event = {.events = EPOLLOUT, .data = {.ptr = &sinks_[i]}};
      epoll_ctl(epoll_, is_watched_[i] ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, sinks_[i].writable_fd(), &event);
    }
  }

  void watch(Reader& reader) {
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = &reader}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, reader.fd, &event);
  }

  void read_or_pause(Reader& reader) {
    if (reader.fd < 0) return;
    if (reader.stream.may_take()) {
      read_once(reader);
      return;
    }
    epoll_ctl(epoll_, EPOLL_CTL_DEL, reader.fd, nullptr);  // masked only, it would still be told of a closed end
    reader.is_paused = true;
    ++paused_;
  }

  void resume_readers() {
    if (paused_ == 0) return;
    for (Reader& reader : readers_) {
      if (!reader.is_paused || !reader.stream.may_take()) continue;
      reader.is_paused = false;
      --paused_;
      watch(reader);
    }
  }

  bool serve_requests() {
    std::uint64_t count;
    const ssize_t ignored = read(wake_, &count, sizeof count);
    (void)ignored;
    while (true) {
      Request request;
      {
        const std::lock_guard lock(mutex_);
        if (requests_.empty()) return false;
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      switch (request.kind) {
        case Request::Kind::Filter:
          filter_of(request.console) = std::move(request.filter);
          break;
        case Request::Kind::Stream:
          add_stream(std::move(request));
          break;
        case Request::Kind::Line:
          sink(request.console).write(kOwnLines, request.text + "\n");
          break;
        case Request::Kind::Events:
          events_ = std::move(request.file);
          break;
        case Request::Kind::Event:
          if (events_) events_->write(kOwnLines, request.text + "\n");
          break;
        case Request::Kind::EndRound:
          finish_streams();
          break;
        case Request::Kind::Resize:
          resize_ptys();
          break;
        case Request::Kind::Quit:
          finish_streams();
          return true;
      }
    }
  }

  void add_stream(Request request) {
    const Console console = request.route.console;
    Sink* shown_on = request.route.shown ? &sink(console) : nullptr;
    LineFilter* filter = filter_of(console).file ? &filter_of(console) : nullptr;
    Reader& reader = readers_.emplace_back(
        Reader{{std::move(request.route), ++writers_, shown_on, std::move(request.file), filter}, request.fd});
    if (reader.fd >= 0) watch(reader);
  }

  void resize_ptys() {
    for (const Reader& reader : readers_) {
      winsize size = {};
      if (reader.fd >= 0 && ioctl(sink(reader.stream.route().console).fd(), TIOCGWINSZ, &size) == 0) {
        ioctl(reader.fd, TIOCSWINSZ, &size);
      }
    }
  }

  // How many bytes; 0: nothing more now (or ever: then the descriptor is closed).
  std::size_t read_once(Reader& reader) {
    if (reader.fd < 0) return 0;
    const ssize_t size = read(reader.fd, buffer_.data(), buffer_.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (size <= 0) {  // end of file; EIO is a pty's way to say so
      close(std::exchange(reader.fd, -1));
      return 0;
    }
    reader.stream.take({buffer_.data(), static_cast<std::size_t>(size)});
    return static_cast<std::size_t>(size);
  }

  void finish_streams() {
    std::vector<LastWords> last_words;
    for (Reader& reader : readers_) {
      // No more than was in it: a process that is not ours may hold it open, and write for ever.
      std::size_t drained = 0;
      while (const std::size_t size = drained < kMostInAPipe ? read_once(reader) : 0) drained += size;
      if (reader.fd >= 0) close(reader.fd);
      reader.stream.finish();
      const StreamRoute& route = reader.stream.route();
      if (route.console != Console::Stderr) continue;
      const auto index = static_cast<std::size_t>(route.local_rank);
      if (last_words.size() <= index) last_words.resize(index + 1);
      last_words[index] = {reader.stream.last_lines(), route.file};
    }
    readers_.clear();
    paused_ = 0;
    filters_ = {};
    const std::lock_guard lock(mutex_);
    last_words_ = std::move(last_words);
    ++rounds_ended_;
    done_.notify_all();
  }

  const Sink::Warn warn_;
  std::atomic<bool> warned_ = false;
  int epoll_ = -1;
  int wake_ = -1;
  int finished_ = -1;
  std::atomic<Clock::time_point> progress_at_ = Clock::now();
  std::array<Sink, 2> sinks_;
  // The thread's own:
  std::array<LineFilter, 2> filters_;  // readers' streams point into them,
  std::list<Reader> readers_;          // and epoll into these
  int paused_ = 0;                     // how many of them are
  std::array<bool, 2> is_watched_ = {};
  std::unique_ptr<Sink> events_;
  int writers_ = kOwnLines;
  std::array<char, 65536> buffer_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable done_;
  std::deque<Request> requests_;
  std::vector<LastWords> last_words_;
  std::uint64_t rounds_ended_ = 0;

  std::thread thread_;  // last: it uses all of the above
};

Output::Output(std::function<void(const std::string&)> warn) : thread_(std::make_unique<Thread>(std::move(warn))) {}

Output::~Output() {
  if (thread_->finish()) return;
  say_what_is_lost();
  static_cast<void>(thread_.release());  // the process is about to end
}

void Output::filter_lines(Console console, const std::string& path, const std::vector<std::string>& words) {
  thread_->filter(console, path, words);
}

void Output::open_events(const std::string& path) { thread_->open_events(path); }

void Output::write_event(std::string line) { thread_->write_event(std::move(line)); }

int Output::open_stream(const StreamRoute& route) { return thread_->open_stream(route); }

void Output::begin_round() { thread_->begin_round(); }

void Output::write_line(Console console, std::string text) { thread_->write_line(console, std::move(text)); }

std::vector<Output::LastWords> Output::end_round(std::chrono::milliseconds deadline) {
  return thread_->end_round(deadline);
}

void Output::resize() { thread_->resize(); }

}  // namespace ddp::launcher
