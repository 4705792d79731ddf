// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace ddp::testing {

namespace {

using Clock = std::chrono::steady_clock;
constexpr char kMark[] = "DDPRUN_TEST_MARK";

std::string new_mark() {
  static std::atomic<int> counter{0};
  return std::to_string(getpid()) + "-" + std::to_string(counter++);
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    if (isdigit(static_cast<unsigned char>(entry->d_name[0]))) pids.push_back(atoi(entry->d_name));
  }
  closedir(proc);
  return pids;
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const Options& options)
    : mark_(new_mark()), deadline_(options.deadline) {
  int out[2], err[2], in[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(in, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe");
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  // Block signals until the program runs: until then the child is a copy of this process, with
  // Catch's handlers.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = options.on_terminal ? forkpty(&out_fd_, nullptr, nullptr, nullptr) : fork();
  if (pid_ == 0) {
    for (const int caught : {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) ::signal(caught, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (!options.on_terminal) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
    }
    setenv(kMark, mark_.c_str(), 1);
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (options.max_open_files != 0) {
      const rlimit limit = {options.max_open_files, options.max_open_files};
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    execvp(argv[0], argv.data());
    _exit(99);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  if (options.on_terminal) {
    close(out[0]);
    close(err[0]);
  } else {
    out_fd_ = out[0];
    err_fd_ = err[0];
    if (options.close_stdout) close(std::exchange(out_fd_, -1));
  }
  if (!options.stdin_text.empty() && write(in[1], options.stdin_text.data(), options.stdin_text.size()) < 0) {
    throw std::runtime_error("stdin");
  }
  close(in[1]);
}

Process::~Process() {
  for (const pid_t pid : left_over()) kill(pid, SIGKILL);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

void Process::signal(int number) const { kill(pid_, number); }

void Process::type(const std::string& keys) {
  if (write(out_fd_, keys.data(), keys.size()) < 0) throw std::runtime_error("the terminal is gone");
}

pid_t Process::foreground() const { return tcgetpgrp(out_fd_); }

void Process::hang_up() { close(std::exchange(out_fd_, -1)); }

bool Process::read_some(Clock::time_point deadline) {
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  if (left <= 0 || poll(fds, 2, static_cast<int>(left)) == 0) {
    throw std::runtime_error("nothing more came; stdout so far:\n" + out_ + "\nstderr so far:\n" + err_);
  }
  const auto take = [](const pollfd& ready, int& fd, std::string& into) {
    if (ready.revents == 0) return;
    char buffer[65536];
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size > 0) {
      into.append(buffer, static_cast<std::size_t>(size));
    } else {
      close(std::exchange(fd, -1));
    }
  };
  take(fds[0], out_fd_, out_);
  take(fds[1], err_fd_, err_);
  return true;
}

void Process::wait_for(const std::string& text, int times) {
  const auto deadline = Clock::now() + deadline_;
  while (count(out_, text) < times && count(err_, text) < times) {
    if (!read_some(deadline)) {
      throw std::runtime_error("it ended without '" + text + "'; stdout:\n" + out_ + "\nstderr:\n" + err_);
    }
  }
}

Result Process::wait() {
  const auto deadline = Clock::now() + deadline_;
  while (read_some(deadline)) {
  }
  int status = 0;
  // Its output has ended. The process either ends at once, or hangs.
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) throw std::runtime_error("it does not end; stderr:\n" + err_);
    std::this_thread::yield();
  }
  pid_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_, err_};
}

std::vector<pid_t> Process::left_over() const {
  const std::string wanted = std::string(kMark) + "=" + mark_;
  std::vector<pid_t> found;
  for (const pid_t pid : all_pids()) {
    const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
    std::istringstream entries(environment);
    for (std::string entry; std::getline(entries, entry, '\0');) {
      if (entry == wanted && state_of(pid) != 'Z' && state_of(pid) != 'X') found.push_back(pid);
    }
  }
  return found;
}

bool Process::all_gone() const {
  constexpr int kLooks = 8;  // a process that keeps forking and ending can escape a single look
  const auto deadline = Clock::now() + deadline_;
  for (int none = 0; none < kLooks; none = left_over().empty() ? none + 1 : 0) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Result run(const std::vector<std::string>& command, const Process::Options& options) {
  return Process(command, options).wait();
}

void kill_at_once(const std::vector<pid_t>& pids) {
  for (const int number : {SIGSTOP, SIGKILL}) {
    for (const pid_t pid : pids) kill(pid, number);
  }
}

char state_of(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(')');
  return name_end == std::string::npos ? 'X' : stat[name_end + 2];
}

void wait_until(const std::function<bool()>& true_at_last) {
  const auto deadline = Clock::now() + kDeadline;
  while (!true_at_last()) {
    if (Clock::now() > deadline) throw std::runtime_error("it does not come true");
    std::this_thread::yield();
  }
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  const std::string id = std::to_string(pid);
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + id + "/task")) {
    std::istringstream list(read_file(task.path() / "children"));
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

pid_t only_child_of(pid_t pid) {
  const std::vector<pid_t> children = children_of(pid);
  if (children.size() != 1) throw std::runtime_error(std::to_string(children.size()) + " children, not one");
  return children.front();
}

int count(const std::string& in, const std::string& text) {
  int found = 0;
  for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + text.size())) ++found;
  return found;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "ddprun_test_XXXXXX";
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  write_file(*this / name, text);
  return *this / name;
}

void write_file(const std::string& path, const std::string& text, bool executable) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) throw std::runtime_error("cannot write " + path);
  if (executable) chmod(path.c_str(), 0755);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ddp::testing
