// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/link.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launcher/text/lines.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::Descriptor;

constexpr std::size_t kChunk = 256 << 10;
constexpr std::size_t kMostNoise = 8 << 10;
constexpr std::size_t kShownLines = 3;
constexpr std::size_t kShownWidth = 300;

constexpr char kTurnedAway[] = "_exchange_identification: ";  // in what ssh says then

void never_block(const Descriptor& fd) { fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK); }

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return "was killed by " + rendezvous::signal_name(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

// Returns what to do about what ssh or the shell on the host has said, where that leaves it open; empty: it does not.
std::string advice(const std::string& said, int status) {
  const auto has = [&said](const char* words) { return said.find(words) != std::string::npos; };
  if (has("Host key verification failed")) return " (connect to it once by hand: ssh asks whether its key is right)";
  if (has(": Permission denied (")) {
    return " (ssh must get there without a password, as after ssh-copy-id; USER@HOST names another user)";
  }
  if (has(kTurnedAway)) {
    return " (it, or a jump host, may admit fewer connections at a time: MaxStartups in its sshd_config)";
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 126) return "";  // a shell could not execute ddprun
  if (has("Exec format error")) return " (it has another kind of CPU than this machine: start ddprun there by hand)";
  return has("Permission denied") ? " (is its file system mounted with noexec?)" : "";
}

}  // namespace

void Link::connect(WorkerCommand& command) {
  rendezvous::Pipe in = rendezvous::make_pipe("to a host");
  rendezvous::Pipe out = rendezvous::make_pipe("from a host");
  rendezvous::Pipe err = rendezvous::make_pipe("from a host");
  in_ = std::move(in.write_end);
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
  for (const Descriptor* end : {&in_, &out_, &err_}) never_block(*end);
  agents_in_ = std::move(in.read_end);
  agents_out_ = std::move(out.write_end);
  agents_err_ = std::move(err.write_end);
  command.stdin_fd = agents_in_.get();
  command.stdout_fd = agents_out_.get();
  command.stderr_fd = agents_err_.get();
}

void Link::started(pid_t pid) {
  pid_ = pid;
  for (Descriptor* end : {&agents_in_, &agents_out_, &agents_err_}) end->close();
}

void Link::send(rendezvous::FrameKind kind, std::string_view payload) {
  if (in_) unsent_ += rendezvous::to_frame(kind, payload);
}

void Link::write_some() {
  if (unsent_.empty()) load_program();
  const ssize_t size = write(in_.get(), unsent_.data(), unsent_.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0) return cut();  // the end of the process says why
  unsent_.erase(0, static_cast<std::size_t>(size));
  if (!has_greeted_) events_.progressed();
}

void Link::load_program() {
  if (!program_) return;
  unsent_.resize(kChunk);
  const ssize_t size = read(program_.get(), unsent_.data(), unsent_.size());
  unsent_.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  if (size <= 0) program_.close();
}

bool Link::read_from(Descriptor& from, const std::function<void(std::string_view)>& take) {
  char buffer[64 << 10];
  const ssize_t size = read(from.get(), buffer, sizeof buffer);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    from.close();
    return false;
  }
  take({buffer, static_cast<std::size_t>(size)});
  return true;
}

void Link::read_out() {
  read_from(out_, [this](std::string_view bytes) { take_out(bytes); });
}

void Link::read_err() {
  read_from(err_, [this](std::string_view bytes) {
    noise_ += bytes;
    if (noise_.size() > kMostNoise) noise_.erase(0, noise_.size() - kMostNoise);
  });
}

void Link::take_out(std::string_view bytes) {
  if (is_wrong_) return;
  if (has_greeted_) {
    frames_.add(bytes);
  } else {
    greeting_.add(bytes);
    take_greeting();
  }
  if (has_greeted_) take_frames();
}

void Link::take_greeting() {
  while (!has_greeted_ && !is_wrong_) {
    const auto word = greeting_.next();
    if (std::holds_alternative<Greeting::NothingYet>(word)) return;
    events_.progressed();
    if (std::holds_alternative<Greeting::Ready>(word)) {
      has_greeted_ = true;
      frames_.add(greeting_.take_rest());
    } else if (const auto* cannot = std::get_if<Greeting::Cannot>(&word)) {
      is_wrong_ = true;
      events_.refused(rendezvous::printable_line(cannot->why));
    } else if (std::exchange(has_sent_program_, true)) {
      is_wrong_ = true;
      events_.refused("it asks for the program a second time");
    } else {
      program_ = Descriptor(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    }
  }
}

void Link::take_frames() {
  while (!is_wrong_) {
    const auto next = frames_.next();
    if (std::holds_alternative<rendezvous::NeedMore>(next)) return;
    if (const auto* wrong = std::get_if<rendezvous::Malformed>(&next)) {
      is_wrong_ = true;
      return events_.refused("it sends " + wrong->why);
    }
    events_.frame(std::get<rendezvous::Frame>(next));
  }
}

void Link::cut() {
  in_.close();
  program_.close();
  unsent_.clear();
}

void Link::kill(int signal) const {
  if (pid_ > 0 && !has_ended_) ::kill(-pid_, signal);
}

std::string Link::end(int status) {
  while (out_ && read_from(out_, [this](std::string_view bytes) { take_out(bytes); })) {
  }
  while (err_ && read_from(err_, [this](std::string_view bytes) { noise_ += bytes; })) {
  }
  has_ended_ = true;
  const std::string words = last_words();
  const bool was_cut = !in_;
  was_turned_away_ = !was_cut && !has_greeted_ && words.find(kTurnedAway) != std::string::npos;
  cut();
  out_.close();
  err_.close();
  return agent_ + " " + describe_end(status) + words + advice(words, status);
}

// What the launch agent or the login shell has said, which nobody has seen yet.
std::string Link::last_words() const {
  const std::string said = noise_.empty() && !has_greeted_ ? greeting_.chatter() : noise_;
  std::string text;
  for (const std::string& line : last_lines(said, kShownLines, kShownWidth)) {
    text += (text.empty() ? ": " : " / ") + rendezvous::printable_line(line);
  }
  return text;
}

}  // namespace ddp::launcher
