// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>

namespace ddp::launcher {

namespace {

constexpr unsigned long kPfExiting = 0x4;  // include/linux/sched.h; field `flags` of /proc/<pid>/stat

std::optional<std::string> read_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[4096];
  ssize_t size;
  while ((size = read(fd, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(size));
  close(fd);
  return size < 0 ? std::nullopt : std::optional(text);
}

struct Stat {
  char state = '?';
  pid_t parent = 0;
  unsigned long flags = 0;
};

std::optional<Stat> read_stat(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return std::nullopt;
  // "pid (comm) state ppid pgrp session tty tpgid flags ..."; comm may hold anything, also parentheses.
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  Stat stat;
  int parent = 0, pgrp, session, tty, tpgid;
  if (sscanf(text->c_str() + after_name + 1, " %c %d %d %d %d %d %lu", &stat.state, &parent, &pgrp, &session, &tty,
             &tpgid, &stat.flags) != 7) {
    return std::nullopt;
  }
  stat.parent = parent;
  return stat;
}

std::multimap<pid_t, pid_t> all_processes_by_parent() {
  std::multimap<pid_t, pid_t> by_parent;
  DIR* proc = opendir("/proc");
  if (!proc) return by_parent;
  while (const dirent* entry = readdir(proc)) {
    if (!isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const pid_t pid = atoi(entry->d_name);
    if (const auto stat = read_stat(pid)) by_parent.emplace(stat->parent, pid);
  }
  closedir(proc);
  return by_parent;
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t root) {
  const auto by_parent = all_processes_by_parent();
  std::vector<pid_t> found = {root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = by_parent.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> children_of_self() {
  std::vector<pid_t> children;
  // The kernel's own lists, one a thread; without them (CONFIG_PROC_CHILDREN) every process is looked at.
  DIR* tasks = opendir("/proc/self/task");
  bool listed = tasks != nullptr;
  while (const dirent* entry = listed ? readdir(tasks) : nullptr) {
    if (!isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const auto list = read_file(std::string("/proc/self/task/") + entry->d_name + "/children");
    listed = list.has_value();
    std::istringstream pids(list.value_or(""));
    for (pid_t pid; pids >> pid;) children.push_back(pid);
  }
  if (tasks) closedir(tasks);
  if (listed) return children;

  const auto by_parent = all_processes_by_parent();
  const auto [begin, end] = by_parent.equal_range(getpid());
  children.clear();
  for (auto child = begin; child != end; ++child) children.push_back(child->second);
  return children;
}

bool was_started_with(pid_t pid, const std::string& name, const std::string& value) {
  const auto environment = read_file("/proc/" + std::to_string(pid) + "/environ");
  if (!environment) return false;
  const std::string wanted = name + "=" + value;
  const char* end = environment->data() + environment->size();
  for (const char* entry = environment->data(); entry < end; entry += strlen(entry) + 1) {
    if (wanted == entry) return true;
  }
  return false;
}

bool is_exiting(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && ((stat->flags & kPfExiting) != 0 || stat->state == 'Z' || stat->state == 'X');
}

void kill_descendants() {
  for (const pid_t pid : descendants_of(getpid())) kill(pid, SIGKILL);
}

std::vector<pid_t> kill_descendants_and_wait(std::chrono::milliseconds deadline) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + deadline;
  sigset_t child_died, before;
  sigemptyset(&child_died);
  sigaddset(&child_died, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_died, &before);
  std::vector<pid_t> left;
  while (true) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) break;
    if (Clock::now() >= end) {
      left = descendants_of(getpid());
      break;
    }
    kill_descendants();
    // A process born between looking and killing makes no SIGCHLD: look again soon.
    const timespec soon = {0, 10'000'000};
    sigtimedwait(&child_died, nullptr, &soon);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return left;
}

}  // namespace ddp::launcher
