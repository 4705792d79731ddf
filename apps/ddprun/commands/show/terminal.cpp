// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/show/terminal.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace ddp::apps {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H", kClearLine[] = "\x1b[K", kClearBelow[] = "\x1b[J";
constexpr char kBold[] = "\x1b[1m", kPlain[] = "\x1b[0m";

// Writes all of it. A terminal that is not read now (Ctrl-S) is waited for, as every program does.
bool put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(STDOUT_FILENO, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      pollfd room = {STDOUT_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
      continue;
    }
    if (size <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

sigset_t taken_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

}  // namespace

bool is_screen() {
  const char* const kind = getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

bool wants_colour() {
  const char* const no_colour = getenv("NO_COLOR");
  return no_colour == nullptr || *no_colour == '\0';
}

Terminal::Terminal() {
  const sigset_t set = taken_signals();
  sigprocmask(SIG_BLOCK, &set, &signals_before_);
  signals_ = rendezvous::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  termios now = {};
  if (tcgetattr(STDIN_FILENO, &now) == 0) before_ = now;
  has_keys_ = before_.has_value();
  enter();
}

Terminal::~Terminal() {
  leave();
  sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
}

void Terminal::enter() {
  if (before_) {
    termios raw = *before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z still are signals
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  put(kEnter);
}

void Terminal::leave() {
  put(kLeave);
  if (before_) tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

// Ctrl-Z: the shell gets its terminal as it was, and the page comes back with `fg`.
void Terminal::suspend() {
  leave();
  raise(SIGSTOP);
  enter();
}

Terminal::Size Terminal::size() const {
  winsize window = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {window.ws_col, window.ws_row};
}

bool Terminal::show(const std::vector<std::string>& lines, const std::vector<std::size_t>& bold) {
  const bool has_colour = wants_colour();
  std::string page = kHome;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool is_bold = has_colour && std::find(bold.begin(), bold.end(), i) != bold.end();
    page += (is_bold ? kBold : "") + lines[i] + (is_bold ? kPlain : "") + kClearLine;
    if (i + 1 < lines.size()) page += "\r\n";  // a newline after the last one would scroll
  }
  return put(page + kClearBelow);
}

void Terminal::take_signals(Event& event) {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    event.is_resized |= signal == SIGWINCH || signal == SIGTSTP;
    if (signal == SIGTSTP) {
      suspend();
    } else if (signal != SIGWINCH) {
      signal_ = signal;
      event.is_over = true;
    }
  }
}

Terminal::Event Terminal::wait(std::chrono::milliseconds time, int other) {
  pollfd ready[] = {{signals_.get(), POLLIN, 0}, {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}, {other, POLLIN, 0}};
  Event event;
  if (poll(ready, 3, static_cast<int>(std::max<std::int64_t>(0, time.count()))) <= 0) return event;
  if (ready[0].revents != 0) take_signals(event);
  if (ready[1].revents != 0) {
    char keys[64];
    const ssize_t size = read(STDIN_FILENO, keys, sizeof keys);
    if (size > 0) event.keys.assign(keys, static_cast<std::size_t>(size));
    if (size <= 0) has_keys_ = false;                             // no more keys come from there
    if ((ready[1].revents & POLLHUP) != 0) event.is_over = true;  // the terminal is gone
  }
  event.is_other_ready = ready[2].revents != 0;
  return event;
}

}  // namespace ddp::apps
