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

#include "launcher/hosts/on_host_core.hpp"
#include "launcher/hosts/passed_variables.hpp"
#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/network_space.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;
using rendezvous::Frame;
using rendezvous::FrameKind;
using rendezvous::FrameReader;
using rendezvous::Pipe;

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
    if (!is_gone_) unsent_ += rendezvous::to_frame(kind, payload);
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
  FrameReader frames_{kHostFrames};
};

// Containers of one machine that have networks of their own count as machines of their own.
std::string own_machine() {
  const auto [boot, network] = rendezvous::own_network_space();
  return boot.empty() || network.empty() ? "" : boot + "/" + network;
}

// SSH_CONNECTION has the address of the client and its port, and those of the server.
Hello own_hello() {
  Hello hello{.host = rendezvous::host_name(), .port = rendezvous::reserve_port(), .machine = own_machine()};
  const char* const connection = getenv("SSH_CONNECTION");
  std::istringstream words(connection ? connection : "");
  std::string port;
  words >> hello.caller_address >> port >> hello.address;
  // The other hosts have no such address, and a link-local one ("fe80::1%eth0") names an interface of this host.
  const auto is_for_this_host = [](const std::string& address) {
    return address.empty() || rendezvous::is_loopback(address) || address.find('%') != std::string::npos;
  };
  if (is_for_this_host(hello.address)) hello.address = rendezvous::own_reachable_address();
  if (is_for_this_host(hello.caller_address)) hello.caller_address.clear();
  return hello;
}

struct Child {
  pid_t pid = -1;
  Pipe out, err;
  Pipe frames;  // that it sends to the head
};

// The head's options are the job's, so those in the environment of this host do not count.
void enter(const JobHeader& header) {
  for (const std::string& variable : own_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (sets_option(name)) unsetenv(name.c_str());
  }
  for (const std::string& variable : header.variables) set_variable(variable);
  if (chdir(header.folder.c_str()) == 0) {
    setenv("PWD", header.folder.c_str(), 1);
    return;
  }
  throw rendezvous::Error(rendezvous::ErrorCode::System, "the folder " + header.folder + " of the job: " +
                                                             strerror(errno) + " (is it on a shared file system?)");
}

using Job = std::function<int(const JobHeader&, const ToHead&)>;

// The agent writes, too, so the descriptor stays open as long as a process of ddprun's does.
ToHead frames_to_head(int fd) {
  const auto send = [fd](FrameKind kind, std::string_view payload) {
    for (std::string frame = rendezvous::to_frame(kind, payload); !frame.empty();) {
      const ssize_t size = write(fd, frame.data(), frame.size());
      if (size < 0 && errno != EINTR) return;  // this host's part of the job ends, since nobody reads from it
      if (size > 0) frame.erase(0, static_cast<std::size_t>(size));
    }
  };
  return {.cannot_begin =
              [send](int exit_code, const std::string& why) {
                send(FrameKind::CannotBegin, std::to_string(exit_code) + " " + why);
              },
          .report =
              [send](const std::string& json) {
                for (std::size_t at = 0; at < json.size(); at += kRead) send(FrameKind::Report, json.substr(at, kRead));
              }};
}

// The signal after which the job ends because the head, or this process, is gone.
int end_signal(const JobHeader& header) { return header.place.node_rank == 0 ? SIGTERM : kHeadIsGone; }

// Runs in the child.
int begin_job(const JobHeader& header, const Child& child, pid_t parent, const Job& job) {
  prctl(PR_SET_PDEATHSIG, end_signal(header));
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
  const ToHead to_head = frames_to_head(child.frames.write_end.get());
  try {
    enter(header);
    return job(header, to_head);
  } catch (const std::exception& error) {
    to_head.cannot_begin(1, error.what());
    return 1;
  }
}

Child start(const JobHeader& header, const Job& job) {
  Child child;
  child.out = rendezvous::make_pipe("for stdout");
  child.err = rendezvous::make_pipe("for stderr");
  child.frames = rendezvous::make_pipe("to the head");
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid < 0) {
    rendezvous::system_error("cannot fork");
  }
  if (child.pid == 0) {
    const int code = begin_job(header, child, parent, job);
    fflush(nullptr);
    exit(code);
  }
  for (Pipe* const pipe : {&child.out, &child.err, &child.frames}) {
    pipe->write_end.close();
    do_not_block(pipe->read_end.get());
  }
  return child;
}

class OnHost {
 public:
  OnHost(Sender& sender, const Descriptor& signals, const Job& job)
      : sender_(sender), signals_(signals), job_(job), core_(Clock::now()) {}

  int run() {
    while (!is_over()) {
      wait(core_.due());
      carry_out(core_.tick(Clock::now()));
    }
    return *code_;
  }

 private:
  // The head's console may be slow, so there is no deadline as long as the head is there.
  bool is_over() const { return code_ && (!has_head_ || !sender_.has_unsent()); }

  void wait(std::optional<Clock::time_point> until) {
    const bool reads_job = child_ && !sender_.is_full();
    pollfd events[] = {{has_head_ ? STDIN_FILENO : -1, POLLIN, 0},
                       {signals_.get(), POLLIN, 0},
                       {reads_job ? child_->out.read_end.get() : -1, POLLIN, 0},
                       {reads_job ? child_->err.read_end.get() : -1, POLLIN, 0},
                       {reads_job ? child_->frames.read_end.get() : -1, POLLIN, 0},
                       {sender_.has_unsent() ? STDOUT_FILENO : -1, POLLOUT, 0}};
    poll(events, std::size(events), milliseconds_until(until));
    if (events[2].revents != 0) pass_on(child_->out.read_end, FrameKind::Stdout);
    if (events[3].revents != 0) pass_on(child_->err.read_end, FrameKind::Stderr);
    if (events[4].revents != 0) pass_on_frames();
    if (events[0].revents != 0) read_head();
    if (events[1].revents != 0) read_signals();
    sender_.flush();
  }

  // Returns whether there was something.
  template <typename Take>
  static bool read_some(Descriptor& from, Take take) {
    char buffer[kRead];
    const ssize_t size = read(from.get(), buffer, sizeof buffer);
    if (size == 0) from.close();
    if (size > 0) take(std::string_view(buffer, static_cast<std::size_t>(size)));
    return size > 0;
  }
  bool pass_on(Descriptor& from, FrameKind kind) {
    return read_some(from, [&](std::string_view bytes) { sender_.send(kind, bytes); });
  }
  bool pass_on_frames() {
    return read_some(child_->frames.read_end, [this](std::string_view bytes) {
      jobs_frames_.add(bytes);
      for (auto next = jobs_frames_.next(); std::holds_alternative<Frame>(next); next = jobs_frames_.next()) {
        const Frame& frame = std::get<Frame>(next);
        sender_.send(frame.kind, frame.payload);
      }
    });
  }

  // ---- What comes from the head ----

  void read_head() {
    const bool goes_on = head_.read_some();
    take_frames();
    if (goes_on) return;
    lose_head(child_ ? "the connection to the head has ended"
                     : "its stdin ended before the header of a job (does the launch agent pass stdin on?)");
  }

  void take_frames() {
    while (has_head_) {
      const auto next = head_.frames().next();
      if (std::holds_alternative<rendezvous::NeedMore>(next)) return;
      if (const auto* wrong = std::get_if<rendezvous::Malformed>(&next))
        return lose_head("the head sends " + wrong->why);
      const std::string wrong = take(std::get<Frame>(next));
      if (!wrong.empty()) return lose_head("the head sends " + wrong);
    }
  }

  // Returns what is wrong with the frame.
  std::string take(const Frame& frame) {
    const auto now = Clock::now();
    const auto signal = rendezvous::parse_number<int>(frame.payload);
    core_.beat(now);
    try {
      if (frame.kind == FrameKind::Beat) return "";
      if (frame.kind == FrameKind::JobHeader && !child_) {
        begin(job_header_from(frame.payload));
      } else if (frame.kind == FrameKind::Signal && child_ && signal && may_be_sent(*signal)) {
        carry_out(core_.signal(*signal, now));
      } else {
        return child_ ? "a frame that does not belong here" : "another frame before the job's header";
      }
      return "";
    } catch (const rendezvous::Error& error) {
      if (error.code() != rendezvous::ErrorCode::Corrupt) throw;
      return error.what();
    }
  }

  void begin(const JobHeader& header) {
    child_ = start(header, job_);
    core_.job_begins(header.shutdown_timeout, header.silence, end_signal(header), Clock::now());
  }

  static bool may_be_sent(int signal) {
    const int known[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    return std::find(std::begin(known), std::end(known), signal) != std::end(known);
  }

  void lose_head(const std::string& how) { carry_out(core_.lifeline_ended(how, Clock::now())); }

  // ---- What happens here ----

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGCHLD) carry_out(core_.signal(signal, Clock::now()));
    }
    int status = 0;
    if (!child_ || code_ || waitpid(child_->pid, &status, WNOHANG) != child_->pid) return;
    while (child_->out.read_end && pass_on(child_->out.read_end, FrameKind::Stdout)) {
    }
    while (child_->err.read_end && pass_on(child_->err.read_end, FrameKind::Stderr)) {
    }
    while (child_->frames.read_end && pass_on_frames()) {
    }
    carry_out(core_.job_ended(rendezvous::exit_code({.first = rendezvous::ExitStatus::of(status)})));
  }

  // ---- Actions ----

  void carry_out(const OnHostCore::Actions& actions) {
    for (const OnHostAction& action : actions) {
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
  }

  void carry_out(const SignalJob& action) {
    if (!action.why.empty()) fprintf(stderr, "ddprun: %s\n", action.why.c_str());
    kill(child_->pid, action.signal);
  }
  void carry_out(const ReportExit& action) {
    code_ = action.code;
    sender_.send(FrameKind::Exit, std::to_string(action.code));
    sender_.flush();
  }
  // The job must not wait for a head that is gone. One that was out of reach for a while reads the reason later.
  void carry_out(const LeaveHead& action) {
    has_head_ = false;
    sender_.send(FrameKind::Failed, action.why);
    sender_.flush();
    sender_.give_up();
  }
  [[noreturn]] void carry_out(const GiveUp& action) {
    throw rendezvous::Error(rendezvous::ErrorCode::PeerLost, action.why);
  }

  std::optional<Child> child_;            // once there is a job
  FrameReader jobs_frames_{kHostFrames};  // which the job sends to the head
  Receiver head_;
  Sender& sender_;
  const Descriptor& signals_;
  const Job& job_;
  OnHostCore core_;
  bool has_head_ = true;
  std::optional<int> code_;
};

}  // namespace

int run_on_host(const std::function<int(const JobHeader&, const ToHead&)>& job) {
  signal(SIGPIPE, SIG_IGN);  // a head that is gone is noticed at stdin
  signal(SIGHUP, SIG_IGN);   // so is an ssh that is gone
  signal(SIGCHLD, SIG_DFL);
  const sigset_t set = read_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  Sender sender;
  sender.greet();
  try {
    sender.send(FrameKind::Hello, to_text(own_hello()));
    sender.flush();
    return OnHost(sender, signals, job).run();
  } catch (const std::exception& error) {
    fprintf(stderr, "ddprun: on a host: %s\n", error.what());
    sender.send(FrameKind::CannotBegin, std::string("1 ") + error.what());
    sender.finish(Clock::now() + kLastWordsWithin);
    return 1;
  }
}

}  // namespace ddp::launcher
