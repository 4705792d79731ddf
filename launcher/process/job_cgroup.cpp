// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/job_cgroup.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "launcher/process/bare_child.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace fs = std::filesystem;
using rendezvous::Descriptor;

namespace {

using Clock = std::chrono::steady_clock;

// Returns the path of a process's cgroup v2. /proc/<pid>/cgroup has it as
// "0::/user.slice/session-2.scope"; lines of v1 begin with other numbers.
std::optional<std::string> cgroup_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return std::nullopt;
}

// Returns the folder of this process's cgroup. A line of /proc/self/mountinfo, proc(5), reads "41
// 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw": the fourth word is the
// mounted part of the hierarchy, the fifth the mount point. A v2 hierarchy alone is mounted at
// /sys/fs/cgroup; next to v1 ("hybrid") it is at /sys/fs/cgroup/unified.
std::optional<std::string> own_folder() {
  const auto cgroup = cgroup_of("self");
  if (!cgroup) return std::nullopt;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string word, root, mount_point;
    words >> word >> word >> word >> root >> mount_point;
    if (root == "/") root.clear();
    if (cgroup->rfind(root, 0) != 0) continue;
    const std::string folder = mount_point + cgroup->substr(root.size());
    return folder.back() == '/' ? folder.substr(0, folder.size() - 1) : folder;
  }
  return std::nullopt;
}

bool write_to(const std::string& path, const char* text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const ssize_t length = static_cast<ssize_t>(strlen(text));
  return file && write(file.get(), text, static_cast<std::size_t>(length)) == length;
}

bool is_within(pid_t pid, const std::string& path) {
  const auto cgroup = cgroup_of(std::to_string(pid));
  return cgroup && (*cgroup + "/").find(path.substr(path.rfind("/ddprun-")) + "/") != std::string::npos;
}

// Returns every folder of a cgroup, the deepest first. A ddprun that a worker starts has its group
// below the worker's.
std::vector<std::string> folders_of(const std::string& path) {
  std::vector<std::string> folders = {path};
  std::error_code gone;
  for (fs::recursive_directory_iterator entry(path, gone), end; !gone && entry != end; entry.increment(gone)) {
    if (entry->is_directory(gone)) folders.push_back(entry->path());
  }
  return {folders.rbegin(), folders.rend()};
}

void remove_folders(const std::string& path) {
  if (rmdir(path.c_str()) == 0 || errno == ENOENT) return;  // usually there is nothing below it
  for (const std::string& folder : folders_of(path)) rmdir(folder.c_str());
}

// Kills without cgroup.kill, which Linux has since 5.14. Frozen processes neither fork nor exit,
// but SIGKILL reaches them.
void kill_one_by_one(const std::string& path) {
  write_to(path + "/cgroup.freeze", "1");
  for (const std::string& folder : folders_of(path)) {
    std::ifstream pids(folder + "/cgroup.procs");
    for (pid_t pid; pids >> pid;) {
      // The pid may be reused. If its process is in the group after the pidfd was opened, the pidfd
      // refers to that one.
      const Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
      if (pidfd && is_within(pid, path)) syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    }
  }
  write_to(path + "/cgroup.freeze", "0");
}

void kill_all(const std::string& path, bool at_once) {
  if (!at_once || !write_to(path + "/cgroup.kill", "1")) kill_one_by_one(path);
}

// Returns "ddprun-4026531836-2f1c...-": names the pid namespace and the boot whose processes this one sees.
std::string name_of_this_place() {
  std::error_code none;
  std::string pids = fs::read_symlink("/proc/self/ns/pid", none);  // "pid:[4026531836]"
  std::erase_if(pids, [](char c) { return c < '0' || c > '9'; });
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::erase(boot, '-');
  return "ddprun-" + pids + "-" + boot + "-";
}

Descriptor open_folder(const std::string& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_at(const Descriptor& folder, const std::string& path) {
  struct stat held = {}, named = {};
  return folder && fstat(folder.get(), &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino;
}

// Makes a group that nobody else may open, and locks it. Another ddprun that finds it before it is locked removes it,
// and then it is made again.
Descriptor make_locked(const std::string& path) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) break;
    Descriptor folder = open_folder(path);
    if (!folder && errno != ENOENT) break;
    if (folder && flock(folder.get(), LOCK_EX) == 0 && is_at(folder, path)) return folder;
  }
  return {};
}

int processes_in(const std::string& path) {
  int count = 0;
  for (const std::string& folder : folders_of(path)) {
    std::ifstream pids(folder + "/cgroup.procs");
    for (pid_t pid; pids >> pid;) ++count;
  }
  return count;
}

// Returns the abandoned groups of this user in a folder, as `place` names them.
std::vector<std::string> groups_in(const std::string& folder, const std::string& place) {
  std::vector<std::string> groups;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    struct stat status = {};
    if (entry.path().filename().string().rfind(place, 0) != 0) continue;
    if (stat(entry.path().c_str(), &status) == 0 && status.st_uid == geteuid()) groups.push_back(entry.path());
  }
  return groups;
}

// Returns whether a child can start in that group and live. Linux 6.18 (and others) compares how
// often the *parent's* group was killed with how often the new one was: if the numbers differ, the
// child is killed as it starts. So ddprun's own group must never have been killed, and no group of
// a job is used again after it was.
bool can_be_born_into(const std::string& path) {
  const Descriptor folder = open_folder(path);
  if (!folder) return false;
  BareStack stack;
  const auto exit_at_once = [](const void*) { kernel_call(SYS_exit_group, 0); };
  const pid_t pid = start_bare_child_within(exit_at_once, nullptr, stack, folder.get());
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
}

bool is_populated(const Descriptor& events) {
  char text[256] = "";
  return pread(events.get(), text, sizeof text - 1, 0) > 0 && strstr(text, "populated 1") != nullptr;
}

}  // namespace

JobCgroup JobCgroup::choose() {
  JobCgroup group;
  const char* wish = getenv(rendezvous::contract::kCgroup);
  const std::string way = wish ? wish : "";
  const auto folder = own_folder();
  if (way == "off") {
    group.none(std::string(rendezvous::contract::kCgroup) + "=off");
  } else if (getenv("SLURM_TASK_PID")) {
    group.none("Slurm knows the processes of its steps by groups of its own");
  } else if (!folder) {
    group.none("cgroup v2 is not mounted here");
  } else {
    group.place_ = name_of_this_place();
    group.path_ = *folder + "/" + group.place_ + rendezvous::random_id().substr(0, 8);
    group.words_ = "workers are in the control group " + group.path_;
    group.may_kill_at_once_ = way != "freeze";
  }
  return group;
}

Descriptor JobCgroup::make() {
  if (path_.empty()) return {};
  Descriptor lock = make_locked(path_);
  if (!lock) {
    none("cannot make " + path_ + ": " + strerror(errno));
  } else if (!can_be_born_into(path_)) {
    rmdir(path_.c_str());
    none("no process can be born into one");
    lock.close();
  }
  return lock;
}

std::vector<JobCgroup::Ended> JobCgroup::end_abandoned() const {
  std::vector<Ended> ended;
  if (path_.empty()) return ended;
  // Other groups of the same user are beside ddprun's own where each login or terminal has one.
  const fs::path own = fs::path(path_).parent_path();
  std::vector<std::string> groups = groups_in(own, place_);
  std::error_code ignored;
  const bool is_root_of_all = !fs::exists(own / "cgroup.events", ignored);
  if (!is_root_of_all) {
    for (const auto& beside : fs::directory_iterator(own.parent_path(), ignored)) {
      if (!beside.is_directory(ignored) || beside.path() == own) continue;
      const std::vector<std::string> more = groups_in(beside.path(), place_);
      groups.insert(groups.end(), more.begin(), more.end());
    }
  }
  for (const std::string& path : groups) {
    const Descriptor folder = open_folder(path);
    if (path == path_ || !folder || flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;  // in use
    JobCgroup group = *this;
    group.path_ = path;
    const int processes = processes_in(path);
    group.remove(std::chrono::seconds(1));
    if (processes > 0) ended.push_back({path, processes});
  }
  return ended;
}

void JobCgroup::none(const std::string& why) {
  path_.clear();
  words_ = "no control group (" + why + "): descendants are found as this process's own";
}

void JobCgroup::prepare(int workers) const {
  for (int i = 0; i < workers && !path_.empty(); ++i) mkdir(of_worker(1, i).c_str(), 0755);
}

Descriptor JobCgroup::open_worker(int round, int local_rank) const {
  if (path_.empty()) return {};
  const std::string folder = of_worker(round, local_rank);
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return {};
  return Descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void JobCgroup::kill_worker(int round, int local_rank) const {
  if (path_.empty()) return;
  const std::string folder = of_worker(round, local_rank);
  if (rmdir(folder.c_str()) != 0) kill_all(folder, may_kill_at_once_);  // a process or a group is in it
}

void JobCgroup::remove_worker(int round, int local_rank) const {
  if (!path_.empty()) remove_folders(of_worker(round, local_rank));
}

void JobCgroup::kill() const {
  if (!path_.empty()) kill_all(path_, may_kill_at_once_);
}

bool JobCgroup::remove_if_empty() const { return path_.empty() || rmdir(path_.c_str()) == 0 || errno == ENOENT; }

void JobCgroup::remove(std::chrono::milliseconds deadline) const {
  if (remove_if_empty()) return;
  const Descriptor events(open((path_ + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  if (!events) return;  // another of ddprun's processes has removed it
  const auto end = Clock::now() + deadline;
  while (is_populated(events)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    kill();
    pollfd changed = {events.get(), POLLPRI, 0};
    poll(&changed, 1, static_cast<int>(std::min<long long>(left, 100)));
  }
  remove_folders(path_);
}

bool move_into(int cgroup_fd, pid_t pid) {
  const Descriptor procs(openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(pid);
  return procs && write(procs.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace ddp::launcher
