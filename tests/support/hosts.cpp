// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/hosts.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/support/sanitizer.hpp"

namespace ddp::testing {

namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE of these tests
constexpr int kAlive = 3;     // descriptors that a keeper inherits
constexpr int kReady = 4;

std::string network_of(pid_t pid) {
  char text[64];
  const auto size = readlink(("/proc/" + std::to_string(pid) + "/ns/net").c_str(), text, sizeof text);
  // An empty text means that the process has ended, or is not accessible to this one.
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "";
}

std::vector<pid_t> processes_in(const std::string& network, pid_t but_for) {
  std::vector<pid_t> found;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid > 0 && pid != but_for && network_of(pid) == network) found.push_back(pid);
  }
  closedir(proc);
  return found;
}

void kill_all(const std::string& network, pid_t but_for) {
  for (auto left = processes_in(network, but_for); !left.empty(); left = processes_in(network, but_for)) {
    for (const pid_t pid : left) kill(pid, SIGKILL);
    std::this_thread::yield();
  }
}

// Reports a failure of a keeper, which has to set up its namespaces itself. The first word of its
// answer says whether it worked.
void check(bool worked, const char* what) {
  if (worked) return;
  dprintf(kReady, "cannot %s: %s", what, strerror(errno));
  _exit(1);
}

void write_map(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  check(fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), path);
  close(fd);
}

void enter_user_namespace(pid_t of) {
  if (of != 0) {
    const int fd = open(("/proc/" + std::to_string(of) + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && setns(fd, CLONE_NEWUSER) == 0, "enter the user namespace");
    close(fd);
    return;
  }
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  check(unshare(CLONE_NEWUSER) == 0, "make a user namespace");
  write_map("/proc/self/setgroups", "deny");
  write_map("/proc/self/uid_map", "0 " + user + " 1");
  write_map("/proc/self/gid_map", "0 " + group + " 1");
}

[[noreturn]] void be_keeper(const std::string& name, const std::string& hosts_file) {
  check(unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS) == 0, "make namespaces");
  check(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "keep mounts to itself");
  check(mount(hosts_file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0, "replace /etc/hosts");
  check(sethostname(name.data(), name.size()) == 0, "set the host name");
  dprintf(kReady, "ready");
  close(kReady);
  char nothing;
  while (read(kAlive, &nothing, 1) < 0 && errno == EINTR) {
  }
  kill_all(network_of(getpid()), getpid());
  _exit(0);
}

}  // namespace

void skip(const std::string& why) {
  fprintf(stderr, "skipped: %s\n", why.c_str());
  _exit(kSkipped);
}

void skip_with_sanitizer(const std::string& why) {
  if (kIsSanitized) skip("with a sanitizer " + why);
}

void skip_with_thread_sanitizer(const std::string& why) {
  if (kIsThreadSanitized) skip("with ThreadSanitizer " + why);
}

Hosts::Hosts(int count, const Options& options) {
  in_user_namespace_ = geteuid() != 0;
  std::vector<std::vector<int>> networks = options.networks;
  networks.resize(static_cast<std::size_t>(count), {0});
  const auto file_for = [&](int host) {
    std::string text = "127.0.0.1 localhost\n::1 localhost\n";
    for (int other = 0; other < count; ++other) {
      const std::string line = " " + name(other) + "\n";
      if (other == host && options.debian_names) {
        text += "127.0.1.1" + line;
        continue;
      }
      for (const int network : networks[static_cast<std::size_t>(other)]) {
        if (options.v4) text += address(other, network) + line;
        if (options.v6) text += v6_address(other, network) + line;
      }
    }
    const std::string path = folder_ / ("hosts" + std::to_string(host));
    write_file(path, text);
    return path;
  };

  switch_ = keep("switch", file_for(-1));
  std::string switches;
  std::set<int> made;
  for (int host = 0; host < count; ++host) {
    Host& added = hosts_.emplace_back();
    added.keeper = keep(name(host), file_for(host));
    added.networks = networks[static_cast<std::size_t>(host)];
    std::string interfaces = "link set lo up\n";
    for (std::size_t i = 0; i < added.networks.size(); ++i) {
      const int network = added.networks[i];
      const std::string bridge = "switch" + std::to_string(network), port = "port" + std::to_string(i) + "_";
      const std::string interface = "eth" + std::to_string(i);
      if (made.insert(network).second) {
        switches +=
            "link add " + bridge + " type bridge forward_delay 0 mcast_snooping 0\nlink set " + bridge + " up\n";
      }
      switches += "link add " + port + std::to_string(host) + " type veth peer name " + interface + " netns " +
                  std::to_string(added.keeper) + "\nlink set " + port + std::to_string(host) + " master " + bridge +
                  " up\n";
      if (options.v4) interfaces += "addr add " + address(host, network) + "/24 dev " + interface + "\n";
      if (options.v6) interfaces += "addr add " + v6_address(host, network) + "/64 dev " + interface + " nodad\n";
      interfaces += "link set " + interface + " up\n";
    }
    ip(switch_, std::exchange(switches, ""));
    ip(added.keeper, interfaces);
  }
}

Hosts::~Hosts() {
  for (const int fd : alive_) close(fd);
  for (const Host& host : hosts_) waitpid(host.keeper, nullptr, 0);
  if (switch_ > 0) waitpid(switch_, nullptr, 0);
}

pid_t Hosts::keep(const std::string& name, const std::string& hosts_file) {
  int alive[2], ready[2];
  if (pipe2(alive, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    // The keeper must hold none of the test's descriptors, above all not those that show other
    // keepers that the test still lives.
    const int above = 100;
    const int alive_end = fcntl(alive[0], F_DUPFD, above), ready_end = fcntl(ready[1], F_DUPFD, above);
    dup2(alive_end, kAlive);
    dup2(ready_end, kReady);
    syscall(SYS_close_range, kReady + 1, ~0U, 0);  // glibc has the function since 2.34 only
    if (in_user_namespace_) enter_user_namespace(switch_);
    be_keeper(name, hosts_file);
  }
  close(alive[0]);
  close(ready[1]);
  alive_.push_back(alive[1]);
  std::string answer;
  char buffer[256];
  for (ssize_t size; (size = read(ready[0], buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(size));
  }
  close(ready[0]);
  if (answer == "ready") return pid;
  waitpid(pid, nullptr, 0);
  if (!in_user_namespace_ && switch_ == 0) {  // root, but without the right to make namespaces
    in_user_namespace_ = true;
    return keep(name, hosts_file);
  }
  skip("this machine does not let the test have network namespaces (" + answer + ")");
}

std::string Hosts::address(int host, int network) {
  return "10.7." + std::to_string(network) + "." + std::to_string(host + 1);
}

std::string Hosts::v6_address(int host, int network) {
  return network == 0 ? "fd07::" + std::to_string(host + 1)
                      : "fd07:" + std::to_string(network) + "::" + std::to_string(host + 1);
}

std::vector<std::string> Hosts::inside(pid_t keeper, std::vector<std::string> command) const {
  // With --wd the command starts in the current folder instead of /.
  std::vector<std::string> words = {"nsenter", "--target", std::to_string(keeper), "--net", "--uts", "--mount", "--wd"};
  if (in_user_namespace_) words.insert(words.end(), {"--user", "--preserve-credentials"});
  words.push_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::vector<std::string> Hosts::on(int host, std::vector<std::string> command) const {
  return inside(hosts_.at(static_cast<std::size_t>(host)).keeper, std::move(command));
}

void Hosts::ip(pid_t keeper, const std::string& commands) const {
  Process::Options options;
  options.stdin_text = commands;
  const Result result = run(inside(keeper, {"ip", "-batch", "-"}), options);
  if (result.code == 0) return;
  if (result.code == 99 || result.code == 127) skip("nsenter and ip (packages util-linux, iproute2) are needed");
  throw std::runtime_error("ip: " + result.err + "in\n" + commands);
}

void Hosts::on_ports(int host, const std::string& before, const std::string& after) const {
  std::string commands;
  const std::vector<int>& networks = hosts_.at(static_cast<std::size_t>(host)).networks;
  for (std::size_t i = 0; i < networks.size(); ++i) {
    const std::string network = after == " master switch" ? std::to_string(networks[i]) : "";
    commands += before + "port" + std::to_string(i) + "_" + std::to_string(host) + after + network + "\n";
  }
  ip(switch_, commands);
}

void Hosts::unplug(int host) const { on_ports(host, "link set ", " nomaster"); }
void Hosts::plug(int host) const { on_ports(host, "link set ", " master switch"); }
void Hosts::cable_out(int host) const { on_ports(host, "link set ", " down"); }
void Hosts::cable_in(int host) const { on_ports(host, "link set ", " up"); }

namespace {

// A queue of size zero drops everything sent through the interface.
void drop_at(const std::vector<std::string>& tc, const std::string& interface, bool drop) {
  std::vector<std::string> words = tc;
  words.insert(words.end(), {"tc", "qdisc", drop ? "add" : "del", "dev", interface, "root"});
  if (drop) words.insert(words.end(), {"pfifo", "limit", "0"});
  const Result result = run(words);
  if (result.code != 0) throw std::runtime_error("tc: " + result.err);
}

}  // namespace

void Hosts::deafen(int host) const { drop_at(inside(switch_, {}), "port0_" + std::to_string(host), true); }
void Hosts::undeafen(int host) const { drop_at(inside(switch_, {}), "port0_" + std::to_string(host), false); }
void Hosts::mute(int host) const { drop_at(on(host, {}), "eth0", true); }
void Hosts::unmute(int host) const { drop_at(on(host, {}), "eth0", false); }

std::vector<std::string> Hosts::instead_of_cable(int host, std::vector<std::string> program) const {
  const std::string id = std::to_string(host), port = "port0_" + id, cable = "cable" + id, plug = "plug" + id;
  ip(switch_, "link add " + cable + " type veth peer name " + plug + "\nlink set " + port + " nomaster\nlink set " +
                  plug + " master switch0 up\nlink set " + cable + " up\n");
  program.insert(program.end(), {port, cable});
  return inside(switch_, std::move(program));
}

void Hosts::slow_down(int host, const std::string& rate) const {
  const std::vector<std::string> slow = {"root", "tbf", "rate", rate, "burst", "16kb", "latency", "500ms"};
  const auto queue = [&](std::vector<std::string> words, const std::string& interface) {
    words.insert(words.end(), {"tc", "qdisc", "add", "dev", interface});
    words.insert(words.end(), slow.begin(), slow.end());
    if (const Result result = run(words); result.code != 0) skip("this kernel has no tbf: " + result.err);
  };
  queue(inside(switch_, {}), "port0_" + std::to_string(host));
  queue(on(host, {}), "eth0");
}

// Also turns off segmentation by the network card: a packet that the card would segment passes as
// one frame of any size.
void Hosts::lose_frames_above(int host, int bytes) const {
  for (const Host& any : hosts_) ip(any.keeper, "link set dev eth0 gso_max_segs 1\n");
  ip(switch_, "link set dev port0_" + std::to_string(host) + " mtu " + std::to_string(bytes) + "\n");
}

void Hosts::power_off(int host) const {
  unplug(host);
  const pid_t keeper = hosts_.at(static_cast<std::size_t>(host)).keeper;
  kill_all(network_of(keeper), keeper);
}

std::vector<pid_t> Hosts::processes(int host) const {
  const pid_t keeper = hosts_.at(static_cast<std::size_t>(host)).keeper;
  return processes_in(network_of(keeper), keeper);
}

bool Hosts::all_gone() const {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  for (int host = 0; host < count(); ++host) {
    while (!processes(host).empty()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
  }
  return true;
}

}  // namespace ddp::testing
