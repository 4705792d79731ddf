// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr unsigned long kPfExiting = 0x4;                 // include/linux/sched.h; field `flags` of /proc/<pid>/stat
constexpr int kStartTimeField = 22, kExitCodeField = 52;  // proc(5)

std::optional<std::string> read_file(const std::string& path, int folder = AT_FDCWD) {
  const Descriptor file(openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  char buffer[4096];
  ssize_t size;
  while ((size = read(file.get(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(size));
  return size < 0 ? std::nullopt : std::optional(text);
}

// Returns the entries of a folder in /proc that are pids.
std::vector<pid_t> pids_in(const std::string& folder) {
  std::vector<pid_t> pids;
  DIR* const open = opendir(folder.c_str());
  while (const dirent* entry = open ? readdir(open) : nullptr) {
    if (isdigit(static_cast<unsigned char>(entry->d_name[0]))) pids.push_back(atoi(entry->d_name));
  }
  if (open) closedir(open);
  return pids;
}

struct Stat {
  char state = '?';
  pid_t parent = 0, group = 0;
  pid_t foreground = -1;  // process group in the foreground of its terminal; not positive: there is none, or not here
  unsigned long flags = 0;
  std::uint64_t start_time = 0;
  int exit_status = 0;  // as waitpid reports it; also 0 if this process may not see it
};

// Reads the file `stat` of a process from its folder in /proc.
std::optional<Stat> read_stat(const std::string& path, int folder = AT_FDCWD) {
  const auto text = read_file(path, folder);
  if (!text) return std::nullopt;
  // "pid (comm) state ppid pgrp session tty tpgid flags ... exit_code"; comm may contain anything,
  // even parentheses.
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  Stat stat;
  int session, tty;
  if (sscanf(text->c_str() + after_name + 1, " %c %d %d %d %d %d %lu", &stat.state, &stat.parent, &stat.group, &session,
             &tty, &stat.foreground, &stat.flags) != 7) {
    return std::nullopt;
  }
  auto field = after_name;  // a field begins after each blank
  for (int i = 2; i < kExitCodeField && field != std::string::npos; ++i) {
    field = text->find(' ', field + 1);
    if (i + 1 == kStartTimeField && field != std::string::npos)
      stat.start_time = strtoull(&(*text)[field], nullptr, 10);
  }
  if (field != std::string::npos) stat.exit_status = atoi(text->c_str() + field);
  return stat;
}

std::optional<Stat> read_stat(pid_t pid) { return read_stat(rendezvous::process_folder(pid) + "/stat"); }

bool has_ended(const Stat& stat) { return stat.state == 'Z' || stat.state == 'X'; }

// Returns whether a thread has released its memory: then /proc shows no executable for it. The C
// library gives each thread a list of robust futexes, which the kernel drops just before; asking
// for that first saves most of the time. Call this before anything that takes a reference to the
// memory for a moment: if that were the last reference, this process would have to free the memory.
bool has_released_memory(pid_t thread) {
  void* list = nullptr;
  std::size_t size = 0;
  if (syscall(SYS_get_robust_list, thread, &list, &size) == 0 && list != nullptr) return false;
  char executable;
  return readlink((rendezvous::process_folder(thread) + "/exe").c_str(), &executable, 1) < 0 && errno == ENOENT;
}

std::multimap<pid_t, pid_t> all_processes_by_parent() {
  std::multimap<pid_t, pid_t> by_parent;
  for (const pid_t pid : pids_in("/proc")) {
    if (const auto stat = read_stat(pid)) by_parent.emplace(stat->parent, pid);
  }
  return by_parent;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  // The kernel lists the children of each thread; without that (CONFIG_PROC_CHILDREN) every process
  // is examined.
  const std::string folder = rendezvous::process_folder(parent) + "/task";
  const std::vector<pid_t> threads = pids_in(folder);
  bool listed = !threads.empty();
  for (const pid_t thread : threads) {
    const auto list = read_file(folder + "/" + std::to_string(thread) + "/children");
    if (!list && errno == ESRCH) continue;  // the thread has ended
    listed = list.has_value();
    if (!listed) break;
    std::istringstream pids(*list);
    for (pid_t pid; pids >> pid;) children.push_back(pid);
  }
  if (listed) return children;

  const auto by_parent = all_processes_by_parent();
  const auto [begin, end] = by_parent.equal_range(parent);
  children.clear();
  for (auto child = begin; child != end; ++child) children.push_back(child->second);
  return children;
}

// A process that is held. A pid read from /proc may belong to another process by the time it is
// used; a pidfd always refers to the same process. Where there are none (before Linux 5.3, or behind
// a seccomp filter) an open folder of /proc stands in, which is empty once the process is reaped.
// kill() then takes the pid all the same, but the kernel would have to give all other pids first,
// in the moment since the folder was read.
class HeldProcess {
 public:
  explicit HeldProcess(pid_t pid) : pid_(pid), fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    if (fd_ || errno == ESRCH) return;
    is_folder_ = true;
    fd_ = Descriptor(open(rendezvous::process_folder(pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  pid_t pid() const { return pid_; }
  bool lives() const {
    if (is_folder_) {
      const auto stat = read_stat("stat", fd_.get());
      return stat && !has_ended(*stat);
    }
    pollfd ended = {fd_.get(), POLLIN, 0};
    return fd_ && poll(&ended, 1, 0) == 0;
  }
  void signal(int number) const {
    if (!is_folder_) {
      syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0);
    } else if (lives()) {
      kill(pid_, number);
    }
  }

 private:
  pid_t pid_;
  bool is_folder_ = false;
  Descriptor fd_;
};

// Signals everything below `parent`, from the top, so that processes that were killed start no
// others. A process counts as a child if /proc says so while both are held and alive. Where they
// cannot be held (no descriptor is left) nothing is done: they become the caller's own children as
// the processes above them die.
void signal_below(const HeldProcess& parent, int number, const std::function<bool(pid_t)>& wanted) {
  for (const pid_t pid : children_of(parent.pid())) {
    const HeldProcess child(pid);
    const auto stat = read_stat(pid);
    if (!stat || stat->parent != parent.pid() || !child.lives() || !parent.lives()) continue;
    if (!wanted || wanted(pid)) child.signal(number);
    signal_below(child, number, wanted);
  }
}

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
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

std::vector<pid_t> children_of_self() { return children_of(getpid()); }

bool was_started_with(pid_t pid, const std::string& name, const std::string& value) {
  const auto environment = read_file(rendezvous::process_folder(pid) + "/environ");
  if (!environment) return false;
  const std::string wanted = name + "=" + value;
  const char* end = environment->data() + environment->size();
  for (const char* entry = environment->data(); entry < end; entry += strlen(entry) + 1) {
    if (wanted == entry) return true;
  }
  return false;
}

std::string name_of(pid_t pid) {
  std::ifstream file(rendezvous::process_folder(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

bool is_in_session_of(pid_t leader, pid_t pid) { return getsid(pid) == leader; }

std::string command_line_of(pid_t pid) {
  std::string words = read_file(rendezvous::process_folder(pid) + "/cmdline").value_or("");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

bool is_in_background(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && stat->foreground > 0 && stat->foreground != stat->group;
}

std::optional<std::uint64_t> start_time_of(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat ? std::optional(stat->start_time) : std::nullopt;
}

bool is_exiting(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && ((stat->flags & kPfExiting) != 0 || has_ended(*stat));
}

bool catches_signal(pid_t pid, int signal) {
  const auto text = read_file(rendezvous::process_folder(pid) + "/status");
  const std::size_t at = text ? text->find("\nSigCgt:") : std::string::npos;
  unsigned long long caught = 0;
  if (at == std::string::npos || sscanf(text->c_str() + at, "\nSigCgt: %llx", &caught) != 1) return false;
  return (caught >> (signal - 1) & 1) != 0;
}

std::optional<int> status_of_dying(pid_t child) {
  if (!has_released_memory(child)) return std::nullopt;  // the main thread: this usually decides it
  for (const pid_t thread : pids_in(rendezvous::process_folder(child) + "/task")) {
    if (!has_released_memory(thread)) return std::nullopt;
  }
  const auto stat = read_stat(child);
  return stat ? std::optional(stat->exit_status) : std::nullopt;
}

std::size_t resident_size(pid_t pid) {
  if (has_released_memory(pid)) return 0;
  const auto text = read_file(rendezvous::process_folder(pid) + "/statm");
  std::size_t pages = 0;
  if (!text || sscanf(text->c_str(), "%*u %zu", &pages) != 1) return 0;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void signal_family(pid_t child, int number, const std::function<bool(pid_t)>& wanted) {
  const HeldProcess held(child);
  if (!wanted || wanted(child)) kill(child, number);
  if (held.lives()) signal_below(held, number, wanted);  // else its children are the caller's already
}

void signal_descendants(int number, const std::vector<pid_t>& but_not) {
  for (const pid_t child : children_of_self()) {
    if (!contains(but_not, child)) signal_family(child, number);
  }
}

bool kill_below(pid_t child, std::chrono::milliseconds deadline) {
  const auto end = Clock::now() + deadline;
  const auto lives = [](pid_t pid) { return !is_exiting(pid); };
  while (true) {
    signal_family(child, SIGKILL, [&](pid_t pid) { return pid != child; });
    const std::vector<pid_t> below = descendants_of(child);
    if (std::none_of(below.begin(), below.end(), lives)) return true;
    if (Clock::now() >= end) return false;
    poll(nullptr, 0, 10);
  }
}

std::vector<pid_t> kill_descendants_and_wait(std::chrono::milliseconds deadline, std::vector<pid_t> but_not) {
  const auto end = Clock::now() + deadline;
  sigset_t child_died, before;
  sigemptyset(&child_died);
  sigaddset(&child_died, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_died, &before);
  std::vector<pid_t> left;
  while (true) {
    pid_t reaped;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) std::erase(but_not, reaped);
    if (reaped < 0) break;  // no child at all
    left = children_of_self();
    std::erase_if(left, [&](pid_t pid) { return contains(but_not, pid); });
    if (left.empty() || Clock::now() >= end) break;
    signal_descendants(SIGKILL, but_not);
    // A process that started after the list was read was not signalled and causes no SIGCHLD: list
    // again soon.
    const timespec soon = {0, 10'000'000};
    sigtimedwait(&child_died, nullptr, &soon);
    left.clear();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return left;
}

}  // namespace ddp::launcher
