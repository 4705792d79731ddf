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
#include <variant>

#include "launcher/output/sink.hpp"
#include "launcher/output/worker_stream.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Descriptor;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Pipe;
using Clock = Sink::Clock;

constexpr std::size_t kMostInAPipe = 1 << 20;  // /proc/sys/fs/pipe-max-size
constexpr int kOwnLines = 0;                   // number of ddprun as a writer; workers' streams count from 1

// Opens a log file. With O_APPEND, a file that a user truncates while it is written gets no hole.
Descriptor open_log(const std::string& path, int flags = O_TRUNC) {
  return Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666));
}

// Returns a pty that resembles `terminal`: ddprun reads the master, a worker writes to the slave.
// Returns no ends, with the reason in errno, if there is none.
Pipe open_pty(int terminal) {
  termios raw = {};
  tcgetattr(terminal, &raw);
  cfmakeraw(&raw);
  winsize size = {};
  ioctl(terminal, TIOCGWINSZ, &size);
  int master, slave;
  if (openpty(&master, &slave, nullptr, &raw, &size) != 0) return {};
  fcntl(master, F_SETFD, FD_CLOEXEC);
  fcntl(slave, F_SETFD, FD_CLOEXEC);
  return {Descriptor(master), Descriptor(slave)};
}

// Returns a descriptor that is readable while a signal that is meant to end ddprun is pending and
// blocked.
Descriptor open_end_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  return Descriptor(signalfd(-1, &set, SFD_CLOEXEC));
}

// Writes to stderr directly, since the output thread is stuck.
void report_lost_output() {
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  dprintf(STDERR_FILENO, "ddprun: stdout or stderr takes nothing any more; the end of the output is lost\n");
}

}  // namespace

class Output::Thread {
 public:
  explicit Thread(Sink::Logger log)
      : log_(std::move(log)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        finished_(eventfd(0, EFD_CLOEXEC)),
        sinks_{Sink(STDOUT_FILENO, Sink::Kind::Console, "stdout", log_once()),
               Sink(STDERR_FILENO, Sink::Kind::Console, "stderr", log_once())} {
    if (!epoll_ || !wake_ || !finished_) {
      throw Error(ErrorCode::System, std::string("cannot make the output loop: ") + strerror(errno));
    }
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = this}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
    thread_ = rendezvous::start_thread("ddprun-output", [this] { run(); });
  }

  // Writes what is left and ends the thread. Returns false if a console is stuck; then the thread
  // still runs, and this object must outlive it.
  bool finish() {
    progress_at_ = Clock::now();
    post(Quit{});
    const Descriptor signals = open_end_signals();
    // Wait for the thread's end, for a signal, or until nothing was written for kFinalFlush.
    bool is_finished = false;
    while (!is_finished) {
      const auto left = progress_at_.load() + kFinalFlush - Clock::now();
      const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      pollfd wait[] = {{finished_.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
      const int ready = milliseconds > 0 ? poll(wait, 2, static_cast<int>(milliseconds)) : 0;
      is_finished = ready > 0 && wait[0].revents != 0;
      if (milliseconds <= 0 || (ready > 0 && wait[1].revents != 0)) break;
    }
    if (!is_finished) {
      has_logged_ = true;  // the log will be destroyed: do not call it
      thread_.detach();
      return false;
    }
    thread_.join();
    return true;
  }

  void begin_round() { notify(wake_); }

  void filter(Console console, const std::string& path, const std::vector<std::string>& words) {
    auto file = open_sink(path);
    if (!file) return;
    queue(SetFilter{console, {words, std::move(file)}});
  }

  // Runs before the round's workers exist, so nothing can be read yet.
  Descriptor open_stream(StreamRoute route) {
    // A stream that is only redirected: the worker holds the file itself.
    if (!route.shown && !route.file.empty()) {
      if (Descriptor file = open_log(route.file)) {
        queue(AddStream{std::move(route), {}, {}});
        return file;
      }
      cannot_open(route.file);
      route.file.clear();
      route.shown = true;
    }
    // Any other stream is read by the thread.
    std::unique_ptr<Sink> file;
    if (!route.file.empty()) file = open_sink(route.file);
    if (!file) route.file.clear();
    Pipe pipe = open_pipe(route);
    if (!pipe.write_end) {
      throw Error(ErrorCode::System, "cannot open a stream for worker " + std::to_string(route.local_rank) + ": " +
                                         strerror(errno) + " (a limit on open files? see ulimit -n)");
    }
    if (pipe.read_end) {
      fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
      queue(AddStream{std::move(route), std::move(pipe.read_end), std::move(file)});
    }
    return std::move(pipe.write_end);
  }

  void write_line(Console console, std::string text) { post(WriteLine{console, std::move(text)}); }

  void open_events(const std::string& path) {
    Descriptor file = open_log(path, 0);
    if (!file) {
      throw Error(ErrorCode::System, "cannot open " + path + " (--event-log-file): " + strerror(errno));
    }
    post(SetEvents{std::make_unique<Sink>(file.release(), Sink::Kind::File, path, log_once())});
  }

  void write_event(std::string line) { post(WriteEvent{std::move(line)}); }

  void resize() { post(Resize{}); }

  std::vector<LastWords> end_round(std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    const auto before = rounds_ended_;
    lock.unlock();
    post(EndRound{});
    lock.lock();
    done_.wait_for(lock, deadline, [&] { return rounds_ended_ != before; });
    return std::move(last_words_);
  }

 private:
  struct SetFilter {
    Console console;
    LineFilter filter;
  };
  struct AddStream {
    StreamRoute route;
    Descriptor fd;  // ddprun's end; none: the worker holds its file itself
    std::unique_ptr<Sink> file;
  };
  struct WriteLine {
    Console console;
    std::string text;
  };
  struct SetEvents {
    std::unique_ptr<Sink> file;
  };
  struct WriteEvent {
    std::string text;
  };
  struct EndRound {};
  struct Resize {};
  struct Quit {};
  using Request = std::variant<SetFilter, AddStream, WriteLine, SetEvents, WriteEvent, EndRound, Resize, Quit>;

  struct Reader {
    WorkerStream stream;
    Descriptor fd;  // none: as in AddStream, or the worker has closed its end
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

  static void notify(const Descriptor& eventfd) {
    const std::uint64_t one = 1;
    const ssize_t ignored = write(eventfd.get(), &one, sizeof one);
    (void)ignored;
  }

  Pipe open_pipe(const StreamRoute& route) {
    if (route.shown && route.lines != StreamRoute::Lines::Teed && sink(route.console).is_terminal()) {
      return open_pty(sink(route.console).fd());
    }
    if (route.shown || route.console == Console::Stderr) return rendezvous::try_pipe().value_or(Pipe());
    return {.read_end = {}, .write_end = Descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC))};
  }

  // Returns a logger that logs only the first failure: one full disk affects many files.
  Sink::Logger log_once() {
    return [this](const std::string& what) {
      if (!has_logged_.exchange(true)) log_(what);
    };
  }

  void cannot_open(const std::string& path) {
    log_once()("cannot open " + path + ": " + strerror(errno) + "; the job goes on without it");
  }

  std::unique_ptr<Sink> open_sink(const std::string& path) {
    Descriptor file = open_log(path);
    if (!file) {
      cannot_open(path);
      return nullptr;
    }
    return std::make_unique<Sink>(file.release(), Sink::Kind::File, path, log_once());
  }

  Sink& sink(Console console) { return sinks_[console == Console::Stdout ? 0 : 1]; }
  LineFilter& filter_of(Console console) { return filters_[console == Console::Stdout ? 0 : 1]; }

  void run() {
    bool quit = false;
    while (!quit || is_behind()) {
      std::array<epoll_event, 64> events;
      const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), until_stuck());
      // epoll returns streams in the order in which they became ready: a worker's stdout line
      // before its later stderr line.
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
      // Requests come last: EndRound destroys readers, to which these events may point.
      if (has_requests) quit = serve_requests() || quit;
      watch_consoles();
      resume_readers();
      if (ready > 0) progress_at_ = Clock::now();
    }
    notify(finished_);
  }

  bool is_behind() const { return sinks_[0].is_behind() || sinks_[1].is_behind(); }

  // Returns the milliseconds until a console counts as stuck, so that paused readers go on; -1 if
  // no reader is paused.
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

  // Watches a console while it is behind, so that flush() is called when it takes more.
  void watch_consoles() {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (is_watched_[i] == sinks_[i].is_behind()) continue;
      is_watched_[i] = !is_watched_[i];
      epoll_event event = {.events = EPOLLOUT, .data = {.ptr = &sinks_[i]}};
      epoll_ctl(epoll_.get(), is_watched_[i] ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, sinks_[i].writable_fd(), &event);
    }
  }

  void watch(Reader& reader) {
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = &reader}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, reader.fd.get(), &event);
  }

  void read_or_pause(Reader& reader) {
    if (!reader.fd) return;
    if (reader.stream.may_take()) {
      read_once(reader);
      return;
    }
    // Removed, since epoll reports a closed end even with an empty event mask.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, reader.fd.get(), nullptr);
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
    const ssize_t ignored = read(wake_.get(), &count, sizeof count);
    (void)ignored;
    while (true) {
      Request request;
      {
        const std::lock_guard lock(mutex_);
        if (requests_.empty()) return false;
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      std::visit([this](auto& content) { carry_out(content); }, request);
      if (std::holds_alternative<Quit>(request)) return true;
    }
  }

  void carry_out(SetFilter& request) { filter_of(request.console) = std::move(request.filter); }
  void carry_out(const WriteLine& request) { sink(request.console).write(kOwnLines, request.text + "\n"); }
  void carry_out(SetEvents& request) { events_ = std::move(request.file); }
  void carry_out(const WriteEvent& request) {
    if (events_) events_->write(kOwnLines, request.text + "\n");
  }
  void carry_out(const EndRound&) { finish_streams(); }
  void carry_out(const Quit&) { finish_streams(); }

  void carry_out(AddStream& request) {
    const Console console = request.route.console;
    Sink* shown_on = request.route.shown ? &sink(console) : nullptr;
    LineFilter* filter = filter_of(console).file ? &filter_of(console) : nullptr;
    Reader& reader = readers_.emplace_back(Reader{
        {std::move(request.route), ++writers_, shown_on, std::move(request.file), filter}, std::move(request.fd)});
    if (reader.fd) watch(reader);
  }

  void carry_out(const Resize&) {
    for (const Reader& reader : readers_) {
      winsize size = {};
      if (reader.fd && ioctl(sink(reader.stream.route().console).fd(), TIOCGWINSZ, &size) == 0) {
        ioctl(reader.fd.get(), TIOCSWINSZ, &size);
      }
    }
  }

  // Returns the number of bytes read; 0 if there is nothing now, or at end of file, where it closes
  // the descriptor.
  std::size_t read_once(Reader& reader) {
    if (!reader.fd) return 0;
    const ssize_t size = read(reader.fd.get(), buffer_.data(), buffer_.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (size <= 0) {  // end of file, which a pty reports as EIO
      reader.fd.close();
      return 0;
    }
    reader.stream.take({buffer_.data(), static_cast<std::size_t>(size)});
    return static_cast<std::size_t>(size);
  }

  void finish_streams() {
    std::vector<LastWords> last_words;
    for (Reader& reader : readers_) {
      // Read no more than a pipe holds: a process outside the job may have it open and write for
      // ever.
      std::size_t drained = 0;
      while (const std::size_t size = drained < kMostInAPipe ? read_once(reader) : 0) drained += size;
      reader.fd.close();
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

  const Sink::Logger log_;
  std::atomic<bool> has_logged_ = false;
  const Descriptor epoll_;
  const Descriptor wake_;
  const Descriptor finished_;
  std::atomic<Clock::time_point> progress_at_ = Clock::now();
  std::array<Sink, 2> sinks_;
  // Used by the thread only:
  std::array<LineFilter, 2> filters_;  // readers' streams point into these,
  std::list<Reader> readers_;          // and epoll into these
  int paused_ = 0;                     // number of paused readers
  std::array<bool, 2> is_watched_ = {};
  std::unique_ptr<Sink> events_;
  int writers_ = kOwnLines;
  std::array<char, 65536> buffer_;

  std::mutex mutex_;  // guards the members below it
  std::condition_variable done_;
  std::deque<Request> requests_;
  std::vector<LastWords> last_words_;
  std::uint64_t rounds_ended_ = 0;

  std::thread thread_;  // last, since it uses all of the above
};

Output::Output(std::function<void(const std::string&)> log) : thread_(std::make_unique<Thread>(std::move(log))) {}

Output::~Output() {
  if (thread_->finish()) return;
  report_lost_output();
  static_cast<void>(thread_.release());  // the process is about to end
}

void Output::filter_lines(Console console, const std::string& path, const std::vector<std::string>& words) {
  thread_->filter(console, path, words);
}

void Output::open_events(const std::string& path) { thread_->open_events(path); }

void Output::write_event(std::string line) { thread_->write_event(std::move(line)); }

Descriptor Output::open_stream(const StreamRoute& route) { return thread_->open_stream(route); }

void Output::begin_round() { thread_->begin_round(); }

void Output::write_line(Console console, std::string text) { thread_->write_line(console, std::move(text)); }

std::vector<Output::LastWords> Output::end_round(std::chrono::milliseconds deadline) {
  return thread_->end_round(deadline);
}

void Output::resize() { thread_->resize(); }

}  // namespace ddp::launcher
