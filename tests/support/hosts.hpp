// SPDX-License-Identifier: BSD-3-Clause
// Hosts on this machine. Each has its own network interfaces, host name and /etc/hosts, and
// switches connect them. Processes on one host reach the others through real sockets, and there is
// no other way in or out. The test's process stays outside and sees every process.
//
//     host "node0"                 host "node1"                 a network and UTS and mount namespace each, held by a
//       eth0 10.7.0.1 fd07::1        eth0 10.7.0.2 fd07::2      process that waits for the end of the test
//         │ veth                       │ veth
//       port0_0 ──── switch0 ──────── port0_1                   a separate namespace: a host cannot see its port
//
// Where this process is not allowed to make namespaces it makes them within a user namespace; where
// that is not allowed either, the test is skipped. Nothing outlives the test, however it ends: no
// process, no name, no interface.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace ddp::testing {

// Ends this process, which under CTest is one test case, as skipped, and prints the reason.
[[noreturn]] void skip(const std::string& why);
// Does so in a build whose programs a sanitizer watches, where the test cannot pass.
void skip_with_sanitizer(const std::string& why);
void skip_with_thread_sanitizer(const std::string& why);

class Hosts {
 public:
  struct Options {
    bool v4 = true;
    bool v6 = false;
    // For each host, the numbers of the networks it belongs to, with one interface for each: eth0,
    // eth1, ... If empty, all hosts belong to network 0.
    std::vector<std::vector<int>> networks = {};
    bool debian_names = false;  // each host resolves its own name to 127.0.1.1, as Debian's installer sets it up
  };

  // Skips the test if hosts cannot be made here.
  explicit Hosts(int count) : Hosts(count, Options()) {}
  Hosts(int count, const Options& options);
  ~Hosts();  // also ends everything that still runs on them
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  int count() const { return static_cast<int>(hosts_.size()); }
  static std::string name(int host) { return "node" + std::to_string(host); }
  static std::string address(int host, int network = 0);  // IPv4
  static std::string v6_address(int host, int network = 0);

  // Returns the command that runs `command` on a host, for Process. The process that it starts
  // becomes the program.
  std::vector<std::string> on(int host, std::vector<std::string> command) const;

  // Drops everything from and to the host, silently: its interfaces stay up, and neither end of a
  // connection notices.
  void unplug(int host) const;
  void plug(int host) const;
  void deafen(int host) const;  // drops everything sent to the host, until undeafen()
  void undeafen(int host) const;
  void mute(int host) const;  // drops everything the host sends, until unmute()
  void unmute(int host) const;
  // Takes eth0's cable out: the host sees that the interface has no carrier.
  void cable_out(int host) const;
  void cable_in(int host) const;
  // Returns the command that replaces the host's cable from now on: `program`, followed by the two
  // interfaces between which it must carry frames. Nothing gets through unless the program runs.
  std::vector<std::string> instead_of_cable(int host, std::vector<std::string> program) const;
  // Limits the bandwidth of the host's cable in each direction. Excess data waits up to half a
  // second, then it is dropped.
  void slow_down(int host, const std::string& rate) const;
  // Drops frames larger than `bytes` at the host's port, without any notification.
  void lose_frames_above(int host, int bytes) const;
  // Unplugs the host first, so that it sends nothing more, then kills everything on it. Call plug()
  // to use it again.
  void power_off(int host) const;

  // Returns the processes that run on a host, whatever started them. Zombies do not count.
  std::vector<pid_t> processes(int host) const;
  // Waits until no host has a process left; returns false if one still has at the deadline.
  bool all_gone() const;

 private:
  struct Host {
    pid_t keeper = 0;
    std::vector<int> networks;
  };

  std::vector<std::string> inside(pid_t keeper, std::vector<std::string> command) const;
  void ip(pid_t keeper, const std::string& commands) const;
  void on_ports(int host, const std::string& before, const std::string& after) const;
  pid_t keep(const std::string& name, const std::string& hosts_file);

  bool in_user_namespace_ = false;
  pid_t switch_ = 0;
  std::vector<Host> hosts_;
  std::vector<int> alive_;  // one descriptor per keeper; a keeper ends when this is closed
  TemporaryFolder folder_;
};

}  // namespace ddp::testing
