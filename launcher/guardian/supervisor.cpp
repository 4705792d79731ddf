// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian/supervisor.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "launcher/guardian/guardian.hpp"
#include "rendezvous/base/descriptor_message.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/exit_code.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kMostKinds = 4;
constexpr std::size_t kMaxWhyBytes = 1000;
constexpr char kCannotShare[] = "cannot make what the keeper and its processes share";
constexpr std::chrono::milliseconds kBetweenForks{100};  // so that after kTries of them half a second has passed
constexpr std::chrono::milliseconds kBetweenLooks{5};

}  // namespace

// Memory that all of them share.
struct Supervisor::Page {
  struct Slot {
    std::atomic<bool> is_up;
    char why[kMaxWhyBytes + 1];
  } slots[kMostKinds];
};

Supervisor::Supervisor(std::vector<Kind> kinds)
    : requests_(rendezvous::make_socket_pair(SOCK_SEQPACKET, kCannotShare)), page_(kCannotShare) {
  for (Kind& kind : kinds) processes_.push_back({.kind = std::move(kind)});
}

Supervisor::~Supervisor() = default;

bool Supervisor::ask(const std::string& text, const std::vector<int>& descriptors) const {
  return rendezvous::send_with_descriptors(requests_.left.get(), text, descriptors);
}

void Supervisor::say_up() { page_->slots[own_].is_up = true; }

void Supervisor::say_why(const std::string& why) { strncpy(page_->slots[own_].why, why.c_str(), kMaxWhyBytes); }

void Supervisor::take_request(const std::vector<int>& not_theirs) {
  auto request = rendezvous::receive_with_descriptors(requests_.right.get());
  if (!request || request->text.empty() || was_asked_) return;
  was_asked_ = true;
  text_ = std::move(request->text);
  descriptors_ = std::move(request->descriptors);
  not_theirs_ = not_theirs;
  for (std::size_t i = 0; i < processes_.size(); ++i) start(i);
}

void Supervisor::start(std::size_t index) {
  Process& process = processes_[index];
  page_->slots[index].is_up = false;
  page_->slots[index].why[0] = '\0';
  process.pid = fork();
  if (process.pid > 0) return;
  if (process.pid < 0) {
    process.pid = 0;
    const std::string why = std::string("it cannot be forked: ") + strerror(errno);
    process.fork_at = std::chrono::steady_clock::now() + kBetweenForks;
    return failed(index, why);
  }
  own_ = index;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  prctl(PR_SET_NAME, process.kind.name);
  rename_command_line(process.kind.name);
  for (const int fd : not_theirs_) close(fd);
  int code = 1;
  try {
    code = process.kind.run(process.life);
  } catch (const std::exception& error) {
    say_why(error.what());
  }
  _exit(code);
}

bool Supervisor::reap(pid_t pid, int status) {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (process.pid != pid) continue;
    process.pid = 0;
    const Page::Slot& slot = page_->slots[i];
    const auto ended = rendezvous::ExitStatus::of(status);
    const std::string how = describe(ended);
    const int code = ended.signal == 0 ? ended.code : -1;
    if (has_given_up_ || code == kDone) return true;
    process.life.was_up = process.life.was_up || slot.is_up;
    process.life.why_before = std::string(process.kind.name) + " (pid " + std::to_string(pid) + ") " + how;
    if (code == kAgain || (slot.is_up && WIFSIGNALED(status))) {
      process.failed = 0;
    } else {
      failed(i, slot.why[0] != '\0' ? std::string(slot.why) : "it " + how);
      if (has_given_up_) return true;
    }
    if (code != kAgain) {
      fprintf(stderr, "ddprun: its %s (pid %d) %s; starting it again\n", process.kind.name, pid, how.c_str());
    }
    start(i);
    return true;
  }
  return false;
}

void Supervisor::failed(std::size_t index, const std::string& why) {
  Process& process = processes_[index];
  if (has_given_up_ || ++process.failed < kTries) return;
  give_up(std::string(process.kind.name) + " could not be started in " + std::to_string(kTries) + " tries: " + why);
}

int Supervisor::try_again() {
  const auto now = std::chrono::steady_clock::now();
  int wait = -1;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    auto& at = processes_[i].fork_at;
    if (at && now >= *at) {
      at.reset();
      start(i);
    }
    if (at) wait = static_cast<int>(kBetweenForks.count());
  }
  return wait;
}

void Supervisor::wait_for_first(std::chrono::milliseconds within) {
  pid_t& pid = processes_.front().pid;
  const auto until = std::chrono::steady_clock::now() + within;
  while (pid > 0 && waitpid(pid, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) return;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  pid = 0;
}

void Supervisor::give_up(const std::string& why) {
  has_given_up_ = true;
  for (Process& process : processes_) process.fork_at.reset();
  fprintf(stderr, "ddprun: %s\n", why.c_str());
  Process& first = processes_.front();
  if (first.pid > 0) {
    kill(first.pid, SIGKILL);
    waitpid(first.pid, nullptr, 0);
  }
  first.life.gives_up_since = why;
  start(0);
}

std::vector<pid_t> Supervisor::pids() const {
  std::vector<pid_t> pids;
  for (const Process& process : processes_) {
    if (process.pid > 0) pids.push_back(process.pid);
  }
  return pids;
}

}  // namespace ddp::launcher
