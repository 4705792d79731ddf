// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
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

#include "launcher/output/console_feed.hpp"
#include "launcher/output/sink.hpp"
#include "launcher/output/worker_stream.hpp"
#include "launcher/text/lines.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Descriptor;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::Pipe;
using rendezvous::system_error;
using Clock = ConsoleFeed::Clock;

constexpr std::size_t kMostInAPipe = 1 << 20;  // /proc/sys/fs/pipe-max-size
constexpr int kEvents = 0;                     // number of the event log as a writer
// Once the wait for the consoles is to end, they have this time: a reader that is only a moment behind gets everything.
constexpr std::chrono::milliseconds kLastMoment{200};
constexpr std::chrono::seconds kThreadIsBlocked{2};

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

bool are_same_file(int a, int b) {
  struct stat of_a = {}, of_b = {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Returns whether the descriptor takes text without blocking.
bool takes_text(int fd) {
  pollfd ready = {fd, POLLOUT, 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
}

// Writes a line past the output thread or its consoles, which are stuck: to stderr, else to the terminal at stdin.
void write_directly(const std::string& text) {
  for (const int fd : {STDERR_FILENO, STDIN_FILENO}) {
    if (fd == STDIN_FILENO && isatty(fd) == 0) continue;
    if (takes_text(fd) && dprintf(fd, "ddprun: %s\n", text.c_str()) > 0) return;
  }
}

// Returns "FILE" or "FILE and 3 other files".
std::string name_files(const std::string& first, std::size_t count) {
  if (count <= 1) return first;
  return first + " and " + std::to_string(count - 1) + (count == 2 ? " other file" : " other files");
}

// Returns a sentence about lines that a console was never given; empty if there are none.
std::string describe(const std::string& console, const ConsoleFeed::Unshown& unshown) {
  std::string text;
  if (unshown.lines_in_files > 0) {
    text = lines_in_words(unshown.lines_in_files) + " not shown, which " +
           (unshown.lines_in_files == 1 ? "is" : "are") + " in " +
           name_files(*unshown.files.begin(), unshown.files.size());
  }
  if (unshown.other_lines > 0) {
    text += (text.empty() ? "" : ", and ") + lines_in_words(unshown.other_lines) + " lost, which no log file has";
  }
  return text.empty() ? "" : console + " was not read to the end: " + text;
}

// Counts lines that files lack because they could not be written.
struct Losses {
  std::size_t lines = 0, files = 0;
  std::string first{}, why{};  // name of the first file, and its reason
  void add(const Sink* file) {
    if (!file || file->lost_lines() == 0) return;
    lines += file->lost_lines();
    if (files++ > 0) return;
    first = file->name();
    why = file->lost_why();
  }
};

}  // namespace

class Output::Thread {
 public:
  explicit Thread(Sink::Logger log)
      : log_(std::move(log)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        finished_(eventfd(0, EFD_CLOEXEC)),
        feeds_{ConsoleFeed(STDOUT_FILENO, "stdout", log_once()), ConsoleFeed(STDERR_FILENO, "stderr", log_once())},
        has_one_console_(are_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    if (!epoll_ || !wake_ || !finished_) {
      system_error("cannot make the output loop");
    }
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = this}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
    thread_ = rendezvous::start_thread("ddprun-output", [this] { run(); });
  }

  // Writes what is left and ends the thread. Returns false if the thread is blocked; then it still
  // runs, and this object must outlive it.
  bool finish(int owner) {
    post(Quit{});
    const Descriptor signals = open_end_signals();
    pollfd wait[] = {{finished_.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}, {owner, POLLIN, 0}};
    while (poll(wait, 3, -1) < 0) {
    }
    if (!is_finished_within(kLastMoment)) post(GiveUp{});
    if (!is_finished_within(kThreadIsBlocked)) {
      has_logged_ = true;  // the log will be destroyed: do not call it
      thread_.detach();
      return false;
    }
    thread_.join();
    return true;
  }

  void begin_round() { notify(wake_); }

  Consoles consoles() const { return has_one_console_ ? Consoles::One : Consoles::Two; }

  void filter(Console console, const std::string& path, const std::vector<std::string>& words) {
    auto file = open_sink(path);
    if (!file) return;
    queue(SetFilter{console, {words, std::move(file)}});
  }

  // Runs before the round's workers exist, so nothing can be read yet.
  Descriptor open_stream(StreamRoute route) {
    // A stream that is only redirected: the worker holds the file itself.
    if (!route.shown && !route.file.empty()) {
      if (Descriptor file = open_log(route.file, route.goes_on ? 0 : O_TRUNC)) {
        queue(AddStream{std::move(route), {}, {}});
        return file;
      }
      cannot_open(route.file);
      route.file.clear();
      route.shown = true;
    }
    // Any other stream is read by the thread.
    std::unique_ptr<Sink> file;
    if (!route.file.empty()) file = open_sink(route.file, route.goes_on ? 0 : O_TRUNC);
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
      system_error("cannot open " + path + " (--event-log-file)");
    }
    post(SetEvents{std::make_unique<Sink>(file.release(), Sink::Kind::File, path, log_once())});
  }

  void write_event(std::string line) { post(WriteEvent{std::move(line)}); }

  void resize() { post(Resize{}); }

  std::vector<LastWords> end_round(std::chrono::milliseconds deadline) { return await_words(EndRound{}, deadline); }

  std::vector<LastWords> last_words(const std::vector<int>& ended, std::chrono::milliseconds deadline) {
    return await_words(TellWords{ended}, deadline);
  }

  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

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
  struct TellWords {
    std::vector<int> ended;
  };
  struct Resize {};
  struct Quit {};
  struct GiveUp {};
  using Request =
      std::variant<SetFilter, AddStream, WriteLine, SetEvents, WriteEvent, EndRound, TellWords, Resize, Quit, GiveUp>;

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

  // Asks for last words and waits for them.
  std::vector<LastWords> await_words(Request request, std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    const auto before = answers_;
    lock.unlock();
    post(std::move(request));
    lock.lock();
    done_.wait_for(lock, deadline, [&] { return answers_ != before; });
    return std::exchange(last_words_, {});
  }

  bool is_finished_within(std::chrono::milliseconds time) const {
    pollfd wait = {finished_.get(), POLLIN, 0};
    return poll(&wait, 1, static_cast<int>(time.count())) > 0;
  }

  static void notify(const Descriptor& eventfd) {
    const std::uint64_t one = 1;
    const ssize_t ignored = write(eventfd.get(), &one, sizeof one);
    (void)ignored;
  }

  Pipe open_pipe(const StreamRoute& route) {
    if (route.shown && route.lines != StreamRoute::Lines::Teed && feed(route.console).sink().is_terminal()) {
      Pipe pty = open_pty(feed(route.console).sink().fd());
      if (pty.write_end) return pty;
      if (!std::exchange(lacks_ptys_, true)) {
        log_(
            std::string("cannot open a pseudo-terminal for the workers: ") + strerror(errno) +
            "; they write to pipes, so programs may leave out colours and progress bars (/dev/pts must be mounted, and "
            "/proc/sys/kernel/pty/max not reached)");
      }
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

  std::unique_ptr<Sink> open_sink(const std::string& path, int flags = O_TRUNC) {
    Descriptor file = open_log(path, flags);
    if (!file) {
      cannot_open(path);
      return nullptr;
    }
    return std::make_unique<Sink>(file.release(), Sink::Kind::File, path, log_once());
  }

  ConsoleFeed& feed(Console console) { return feeds_[console == Console::Stdout || has_one_console_ ? 0 : 1]; }
  LineFilter& filter_of(Console console) { return filters_[console == Console::Stdout ? 0 : 1]; }

  void run() {
    while (!has_given_up_ && (!has_quit_ || has_unshown())) {
      std::array<epoll_event, 64> events;
      const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), until_due());
      const Clock::time_point now = Clock::now();
      // epoll returns streams in the order in which they became ready: a worker's stdout line
      // before its later stderr line.
      bool has_requests = false;
      for (int i = 0; i < ready; ++i) {
        void* const source = events[static_cast<std::size_t>(i)].data.ptr;
        has_requests = has_requests || source == this;
        const auto console = std::find_if(feeds_.begin(), feeds_.end(), [&](auto& feed) { return &feed == source; });
        if (console != feeds_.end()) {
          console->sink().flush();
        } else if (source != this) {
          read_or_pause(*static_cast<Reader*>(source), now);
        }
      }
      // Requests come last: EndRound destroys readers, to which these events may point.
      if (has_requests) serve_requests();
      for (ConsoleFeed& feed : feeds_) feed.show(now);
      watch_consoles();
      resume_readers();
    }
    notify(finished_);
  }

  bool has_unshown() const {
    return std::any_of(feeds_.begin(), feeds_.end(), [](const ConsoleFeed& feed) { return feed.has_unshown(); });
  }

  // Returns the milliseconds until a console is to show something that it has; -1 if it has
  // nothing.
  int until_due() const {
    const Clock::time_point now = Clock::now();
    std::optional<Clock::time_point> soonest;
    for (const ConsoleFeed& feed : feeds_) {
      const auto due = feed.due(now);
      if (due && (!soonest || *due < *soonest)) soonest = due;
    }
    if (!soonest) return -1;
    return static_cast<int>(
        std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(*soonest - now).count(), 0));
  }

  // Watches a console while it is behind, so that flush() is called when it takes more.
  void watch_consoles() {
    for (std::size_t i = 0; i < feeds_.size(); ++i) {
      const Sink& sink = feeds_[i].sink();
      if (is_watched_[i] == sink.is_behind()) continue;
      is_watched_[i] = !is_watched_[i];
      epoll_event event = {.events = EPOLLOUT, .data = {.ptr = &feeds_[i]}};
      epoll_ctl(epoll_.get(), is_watched_[i] ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, sink.writable_fd(), &event);
    }
  }

  void watch(Reader& reader) {
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = &reader}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, reader.fd.get(), &event);
  }

  void forget(const Reader& reader) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, reader.fd.get(), nullptr); }

  // Closing alone would not do: epoll goes on as long as a child that is yet to execute its program has the pipe too.
  void close(Reader& reader) {
    if (reader.fd && !reader.is_paused) forget(reader);
    reader.fd.close();
  }

  void read_or_pause(Reader& reader, Clock::time_point now) {
    if (!reader.fd) return;
    if (reader.stream.may_take()) {
      read_once(reader, now);
      return;
    }
    forget(reader);  // epoll reports a closed end even with an empty event mask
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

  void serve_requests() {
    std::uint64_t count;
    const ssize_t ignored = read(wake_.get(), &count, sizeof count);
    (void)ignored;
    while (true) {
      Request request;
      {
        const std::lock_guard lock(mutex_);
        if (requests_.empty()) return;
        request = std::move(requests_.front());
        requests_.pop_front();
      }
      std::visit([this](auto& content) { carry_out(content); }, request);
    }
  }

  void carry_out(SetFilter& request) { filter_of(request.console) = std::move(request.filter); }
  void carry_out(const WriteLine& request) { feed(request.console).write_line(request.text + "\n"); }
  void carry_out(SetEvents& request) { events_ = std::move(request.file); }
  void carry_out(const WriteEvent& request) {
    if (events_) events_->write(kEvents, request.text + "\n");
  }
  void carry_out(const EndRound&) { finish_streams(); }

  void carry_out(const TellWords& request) {
    const Clock::time_point now = Clock::now();
    std::vector<LastWords> last_words;
    for (Reader& reader : readers_) {
      const StreamRoute& route = reader.stream.route();
      if (std::count(request.ended.begin(), request.ended.end(), route.local_rank) == 0) continue;
      if (!reader.is_paused) drain(reader, now);
      add_words(last_words, reader);
    }
    tell(std::move(last_words));
  }

  // Reads no more than a pipe holds: a process outside the job may have it open and write for ever.
  void drain(Reader& reader, Clock::time_point now) {
    std::size_t drained = 0;
    while (const std::size_t size = drained < kMostInAPipe ? read_once(reader, now) : 0) drained += size;
  }

  static void add_words(std::vector<LastWords>& last_words, const Reader& reader) {
    const StreamRoute& route = reader.stream.route();
    if (route.console != Console::Stderr) return;
    const auto index = static_cast<std::size_t>(route.local_rank);
    if (last_words.size() <= index) last_words.resize(index + 1);
    last_words[index] = {reader.stream.last_lines(), route.file};
  }

  void tell(std::vector<LastWords> last_words) {
    const std::lock_guard lock(mutex_);
    last_words_ = std::move(last_words);
    ++answers_;
    done_.notify_all();
  }

  void carry_out(const Quit&) {
    has_quit_ = true;
    finish_streams();
    Losses losses;
    for (const ConsoleFeed& feed : feeds_) losses.add(&feed.sink());
    losses.add(events_.get());
    report(losses);
  }

  void carry_out(const GiveUp&) {
    has_given_up_ = true;
    std::vector<std::string> sentences;
    for (ConsoleFeed& feed : feeds_) {
      const std::string name = has_one_console_ ? "the output" : feed.sink().name();
      const std::string sentence = describe(name, feed.give_up());
      if (!sentence.empty()) sentences.push_back(sentence);
    }
    const bool has_stderr = takes_text(feed(Console::Stderr).sink().writable_fd());
    for (const std::string& sentence : sentences) has_stderr ? log_(sentence) : write_directly(sentence);
  }

  void carry_out(AddStream& request) {
    if (request.route.goes_on) forget_streams_before(request.route);
    ConsoleFeed* console = request.route.shown ? &feed(request.route.console) : nullptr;
    LineFilter* filter = filter_of(request.route.console).file ? &filter_of(request.route.console) : nullptr;
    Reader& reader = readers_.emplace_back(Reader{WorkerStream({.route = std::move(request.route),
                                                                .writer = ++writers_,
                                                                .round = rounds_ended_,
                                                                .console = console,
                                                                .file = std::move(request.file),
                                                                .filter = filter}),
                                                  std::move(request.fd)});
    if (reader.fd) watch(reader);
  }

  // Forgets streams of the processes that a worker had before, once they have ended: there may be any number.
  void forget_streams_before(const StreamRoute& route) {
    const Clock::time_point now = Clock::now();
    readers_.remove_if([&](Reader& reader) {
      const StreamRoute& other = reader.stream.route();
      if (other.console != route.console || other.local_rank != route.local_rank || reader.is_paused) return false;
      while (read_once(reader, now) > 0) {
      }
      if (reader.fd) return false;  // what the process has started writes to it
      reader.stream.finish();
      return true;
    });
  }

  void carry_out(const Resize&) {
    for (const Reader& reader : readers_) {
      winsize size = {};
      if (reader.fd && ioctl(feed(reader.stream.route().console).sink().fd(), TIOCGWINSZ, &size) == 0) {
        ioctl(reader.fd.get(), TIOCSWINSZ, &size);
      }
    }
  }

  // Returns the number of bytes read; 0 if there is nothing now, or at end of file, where it closes
  // the descriptor.
  std::size_t read_once(Reader& reader, Clock::time_point now) {
    if (!reader.fd) return 0;
    const ssize_t size = read(reader.fd.get(), buffer_.data(), buffer_.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (size <= 0) {  // end of file, which a pty reports as EIO
      close(reader);
      return 0;
    }
    bytes_read_.fetch_add(static_cast<std::uint64_t>(size), std::memory_order_relaxed);
    reader.stream.take({buffer_.data(), static_cast<std::size_t>(size)}, now);
    return static_cast<std::size_t>(size);
  }

  void finish_streams() {
    const Clock::time_point now = Clock::now();
    std::vector<LastWords> last_words;
    Losses losses;
    for (Reader& reader : readers_) {
      drain(reader, now);
      close(reader);
      reader.stream.finish();
      losses.add(reader.stream.file());
      add_words(last_words, reader);
    }
    for (const LineFilter& filter : filters_) losses.add(filter.file.get());
    report(losses);
    readers_.clear();
    paused_ = 0;
    filters_ = {};
    ++rounds_ended_;
    tell(std::move(last_words));
  }

  void report(const Losses& losses) {
    if (losses.lines == 0) return;
    log_(lines_in_words(losses.lines) + (losses.lines == 1 ? " is" : " are") + " missing in " +
         name_files(losses.first, losses.files) + ": " + losses.why);
  }

  const Sink::Logger log_;
  std::atomic<bool> has_logged_ = false;
  bool lacks_ptys_ = false;  // used by the thread that opens streams
  const Descriptor epoll_;
  const Descriptor wake_;
  const Descriptor finished_;
  std::array<ConsoleFeed, 2> feeds_;
  const bool has_one_console_;  // stdout and stderr are one file, and the first feed serves both
  // Used by the thread only:
  std::array<LineFilter, 2> filters_;  // readers' streams point into these,
  std::list<Reader> readers_;          // and epoll into these
  int paused_ = 0;                     // number of paused readers
  std::atomic<std::uint64_t> bytes_read_{0};
  std::array<bool, 2> is_watched_ = {};
  std::unique_ptr<Sink> events_;
  std::uint64_t rounds_ended_ = 0;
  int writers_ = 0;  // number of the newest stream as a writer of sinks
  bool has_quit_ = false;
  bool has_given_up_ = false;
  std::array<char, 65536> buffer_;

  std::mutex mutex_;  // guards the members below it
  std::condition_variable done_;
  std::deque<Request> requests_;
  std::vector<LastWords> last_words_;
  std::uint64_t answers_ = 0;  // to requests for words

  std::thread thread_;  // last, since it uses all of the above
};

Output::Output(std::function<void(const std::string&)> log, int owner)
    : thread_(std::make_unique<Thread>(std::move(log))), owner_(owner) {}

Output::~Output() {
  if (thread_->finish(owner_)) return;
  write_directly("stdout, stderr or a log file takes nothing any more; the end of the output is lost");
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

Consoles Output::consoles() const { return thread_->consoles(); }

std::vector<Output::LastWords> Output::end_round(std::chrono::milliseconds deadline) {
  return thread_->end_round(deadline);
}

std::vector<Output::LastWords> Output::last_words(const std::vector<int>& ended, std::chrono::milliseconds deadline) {
  return thread_->last_words(ended, deadline);
}

void Output::resize() { thread_->resize(); }

std::uint64_t Output::bytes_read() const { return thread_->bytes_read(); }

}  // namespace ddp::launcher
