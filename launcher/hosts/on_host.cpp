// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/on_host.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/hosts/frame.hpp"
#include "launcher/hosts/greeting.hpp"
#include "launcher/hosts/on_host_core.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/net/reachable.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;
using rendezvous::Pipe;

constexpr std::chrono::seconds kHeaderWithin{120};  // all hosts of the job are ready by then, or it is given up
constexpr std::size_t kRead = 64 << 10;
constexpr std::size_t kMostUnsent = 1 << 20;  // then the job is not read, and so its workers wait
constexpr std::chrono::seconds kLastWordsWithin{5};

void do_not_block(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

int milliseconds_until(std::optional<Clock::time_point> time) {
  if (!time) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time - Clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, 3'600'000));
}

// The signals that this process reads instead of being ended by them.
sigset_t read_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

// stdout, to the head.
class Sender {
 public:
  Sender() { do_not_block(STDOUT_FILENO); }

  void greet() { unsent_ += std::string("\n") + kGreeting + "ready\n"; }
  void send(FrameKind kind, std::string_view payload) {
    if (!is_gone_) unsent_ += to_frame(kind, payload);
  }
  void flush() {
    while (!unsent_.empty()) {
      const ssize_t size = write(STDOUT_FILENO, unsent_.data(), unsent_.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) return;
      if (size < 0) return give_up();
      unsent_.erase(0, static_cast<std::size_t>(size));
    }
  }
  // Waits until all is sent, or nobody takes it.
  void finish(Clock::time_point deadline) {
    for (flush(); has_unsent() && Clock::now() < deadline; flush()) {
      pollfd event = {STDOUT_FILENO, POLLOUT, 0};
      poll(&event, 1, milliseconds_until(deadline));
    }
  }
  bool has_unsent() const { return !unsent_.empty(); }
  bool is_full() const { return unsent_.size() >= kMostUnsent; }
  // What is not sent is dropped from now on: the job must not wait for a head that is gone.
  void give_up() {
    is_gone_ = true;
    unsent_.clear();
  }

 private:
  std::string unsent_;
  bool is_gone_ = false;
};

// stdin, from the head.
class Receiver {
 public:
  Receiver() { do_not_block(STDIN_FILENO); }

  // Reads what is there. Returns false at the end of file.
  bool read_some() {
    char buffer[kRead];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof buffer);
    if (size > 0) frames_.add({buffer, static_cast<std::size_t>(size)});
    return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
  }
  FrameReader& frames() { return frames_; }

 private:
  FrameReader frames_;
};

// SSH_CONNECTION has the address of the client and its port, and those of the server.
Hello own_hello() {
  Hello hello{.host = rendezvous::host_name(), .port = rendezvous::reserve_port()};
  const char* const connection = getenv("SSH_CONNECTION");
  std::istringstream words(connection ? connection : "");
  std::string port;
  words >> hello.caller_address >> port >> hello.address;
  const auto is_loopback = [](const std::string& address) {
    return address.empty() || address.starts_with("127.") || address == "::1";
  };
  if (is_loopback(hello.address)) hello.address = rendezvous::own_reachable_address();
  if (is_loopback(hello.caller_address)) hello.caller_address.clear();
  return hello;
}

JobHeader read_header(Receiver& head) {
  const Clock::time_point deadline = Clock::now() + kHeaderWithin;
  while (true) {
    const auto next = head.frames().next();
    if (const auto* frame = std::get_if<Frame>(&next)) {
      if (frame->kind == FrameKind::Beat) continue;
      if (frame->kind == FrameKind::Header) return job_header_from(frame->payload);
      throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, "another frame before the job's header");
    }
    if (const auto* wrong = std::get_if<Malformed>(&next)) {
      throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, wrong->why);
    }
    pollfd event = {STDIN_FILENO, POLLIN, 0};
    if (poll(&event, 1, milliseconds_until(deadline)) == 0) {
      throw rendezvous::Error(rendezvous::ErrorCode::Timeout,
                              "no header of a job within " + rendezvous::to_string(kHeaderWithin));
    }
    if (!head.read_some()) {
      throw rendezvous::Error(rendezvous::ErrorCode::PeerLost,
                              "its stdin ended before the header of a job (does the launch agent pass stdin on?)");
    }
  }
}

struct Child {
  pid_t pid = -1;
  Pipe out, err;
};

void enter(const JobHeader& header) {
  for (const std::string& variable : header.variables) {
    const auto equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  if (chdir(header.folder.c_str()) == 0) {
    setenv("PWD", header.folder.c_str(), 1);
    return;
  }
  throw rendezvous::Error(rendezvous::ErrorCode::System, "the folder " + header.folder + " of the job: " +
                                                             strerror(errno) + " (is it on a shared file system?)");
}

// Runs in the child.
int begin_job(const JobHeader& header, const Child& child, pid_t parent,
              const std::function<int(const JobHeader&)>& job) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return 1;  // it died before
  setpgid(0, 0);                      // what signals this process's group, such as a terminal, leaves the job to it
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(null.get(), STDIN_FILENO);
  dup2(child.out.write_end.get(), STDOUT_FILENO);
  dup2(child.err.write_end.get(), STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  try {
    enter(header);
    return job(header);
  } catch (const std::exception& error) {
    fprintf(stderr, "ddprun: %s\n", error.what());
    return 1;
  }
}

Child start(const JobHeader& header, const std::function<int(const JobHeader&)>& job) {
  Child child;
  child.out = rendezvous::make_pipe("for stdout");
  child.err = rendezvous::make_pipe("for stderr");
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid < 0) {
    throw rendezvous::Error(rendezvous::ErrorCode::System, std::string("cannot fork: ") + strerror(errno));
  }
  if (child.pid == 0) {
    const int code = begin_job(header, child, parent, job);
    fflush(nullptr);
    exit(code);
  }
  child.out.write_end.close();
  child.err.write_end.close();
  do_not_block(child.out.read_end.get());
  do_not_block(child.err.read_end.get());
  return child;
}

class OnHost {
 public:
  OnHost(const JobHeader& header, Child child, Receiver& head, Sender& sender, const Descriptor& signals)
      : child_(std::move(child)),
        head_(head),
        sender_(sender),
        signals_(signals),
        core_(header.shutdown_timeout, Clock::now()) {}

  int run() {
    take_frames();  // some may have come with the header
    while (!code_) {
      wait(core_.due());
      carry_out(core_.tick(Clock::now()));
    }
    send_rest();
    return *code_;
  }

 private:
  // The head's console may be slow, so there is no deadline as long as the head is there.
  void send_rest() {
    while (sender_.has_unsent()) {
      const Clock::time_point silent_at = last_word_ + OnHostCore::kSilence;
      if (!has_head_ || Clock::now() >= silent_at) return;
      wait(silent_at);
    }
  }

  void wait(std::optional<Clock::time_point> until) {
    const bool reads_job = !sender_.is_full();
    pollfd events[] = {{has_head_ ? STDIN_FILENO : -1, POLLIN, 0},
                       {signals_.get(), POLLIN, 0},
                       {reads_job ? child_.out.read_end.get() : -1, POLLIN, 0},
                       {reads_job ? child_.err.read_end.get() : -1, POLLIN, 0},
                       {sender_.has_unsent() ? STDOUT_FILENO : -1, POLLOUT, 0}};
    poll(events, 5, milliseconds_until(until));
    if (events[2].revents != 0) pass_on(child_.out.read_end, FrameKind::Stdout);
    if (events[3].revents != 0) pass_on(child_.err.read_end, FrameKind::Stderr);
    if (events[0].revents != 0) read_head();
    if (events[1].revents != 0) read_signals();
    sender_.flush();
  }

  // Returns whether there was something.
  bool pass_on(Descriptor& from, FrameKind kind) {
    char buffer[kRead];
    const ssize_t size = read(from.get(), buffer, sizeof buffer);
    if (size == 0) from.close();
    if (size > 0) sender_.send(kind, {buffer, static_cast<std::size_t>(size)});
    return size > 0;
  }

  void read_head() {
    const bool goes_on = head_.read_some();
    take_frames();
    if (!goes_on) lose_head("the connection to the head has ended");
  }

  void take_frames() {
    while (has_head_) {
      const auto next = head_.frames().next();
      if (std::holds_alternative<NeedMore>(next)) return;
      if (const auto* wrong = std::get_if<Malformed>(&next)) return lose_head("the head sends " + wrong->why);
      const auto& frame = std::get<Frame>(next);
      const auto now = Clock::now();
      const auto signal = rendezvous::parse_number<int>(frame.payload);
      last_word_ = now;
      if (frame.kind == FrameKind::Beat) {
        core_.beat(now);
      } else if (frame.kind == FrameKind::Signal && signal && may_be_sent(*signal)) {
        carry_out(core_.signal(*signal, now));
      } else {
        return lose_head("the head sends a frame that does not belong here");
      }
    }
  }

  static bool may_be_sent(int signal) {
    const int known[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    return std::find(std::begin(known), std::end(known), signal) != std::end(known);
  }

  void lose_head(const std::string& how) {
    if (!std::exchange(has_head_, false)) return;
    carry_out(core_.lifeline_ended(how, Clock::now()));
    sender_.flush();
    sender_.give_up();
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGCHLD) carry_out(core_.signal(signal, Clock::now()));
    }
    int status = 0;
    if (waitpid(child_.pid, &status, WNOHANG) != child_.pid) return;
    while (child_.out.read_end && pass_on(child_.out.read_end, FrameKind::Stdout)) {
    }
    while (child_.err.read_end && pass_on(child_.err.read_end, FrameKind::Stderr)) {
    }
    carry_out(core_.job_ended(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }

  void carry_out(const OnHostCore::Actions& actions) {
    for (const OnHostAction& action : actions) {
      if (const auto* signal = std::get_if<SignalJob>(&action)) {
        if (!signal->why.empty()) fprintf(stderr, "ddprun: %s\n", signal->why.c_str());
        kill(child_.pid, signal->signal);
      } else if (const auto* exit = std::get_if<ReportExit>(&action)) {
        code_ = exit->code;
        sender_.send(FrameKind::Exit, std::to_string(exit->code));
        sender_.flush();
      }
    }
  }

  Child child_;
  Receiver& head_;
  Sender& sender_;
  const Descriptor& signals_;
  OnHostCore core_;
  bool has_head_ = true;
  Clock::time_point last_word_ = Clock::now();  // when the head's newest frame came
  std::optional<int> code_;
};

}  // namespace

int run_on_host(const std::function<int(const JobHeader&)>& job) {
  signal(SIGPIPE, SIG_IGN);  // a head that is gone is noticed at stdin
  signal(SIGHUP, SIG_IGN);   // so is an ssh that is gone
  signal(SIGCHLD, SIG_DFL);
  const sigset_t set = read_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  Sender sender;
  Receiver head;
  sender.greet();
  try {
    sender.send(FrameKind::Hello, to_text(own_hello()));
    sender.flush();
    const JobHeader header = read_header(head);
    return OnHost(header, start(header, job), head, sender, signals).run();
  } catch (const std::exception& error) {
    fprintf(stderr, "ddprun: on a host: %s\n", error.what());
    sender.send(FrameKind::Failed, error.what());
    sender.finish(Clock::now() + kLastWordsWithin);
    return 1;
  }
}

}  // namespace ddp::launcher
