// SPDX-License-Identifier: BSD-3-Clause
// Hosts on this machine: each has network interfaces, a host name and an /etc/hosts of its own, all are joined by
// switches. What runs on one reaches the others over real sockets, and nothing else does. The test's process stays
// outside and sees every process.
//
//     host "node0"                 host "node1"                 a network and UTS and mount namespace each, held by a
//       eth0 10.7.0.1 fd07::1        eth0 10.7.0.2 fd07::2      process that waits for the end of the test
//         │ veth                       │ veth
//       port0_0 ──── switch0 ──────── port0_1                   a namespace of its own: the host cannot see its port
//
// Where this process may not make namespaces it does so within a user namespace; where that is not allowed either, the
// test is skipped. Nothing outlives the test, however it ends: no process, no name, no interface.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/process.hpp"

namespace ddp::testing {

// Ends this process, which under CTest is one test case, and says why it says nothing.
[[noreturn]] void skip(const std::string& why);

class Hosts {
 public:
  struct Options {
    bool v4 = true;
    bool v6 = false;
    // Of each host the numbers of the networks it is in, one interface each: eth0, eth1, … All in network 0, if empty.
    std::vector<std::vector<int>> networks = {};
    bool debian_names = false;  // a host's own name is 127.0.1.1 to itself, as Debian's installer writes it
  };

  // Skips the test if it cannot be.
  explicit Hosts(int count) : Hosts(count, Options()) {}
  Hosts(int count, const Options& options);
  ~Hosts();  // with all that still runs on them
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  int count() const { return static_cast<int>(hosts_.size()); }
  static std::string name(int host) { return "node" + std::to_string(host); }
  static std::string address(int host, int network = 0);  // v4
  static std::string v6_address(int host, int network = 0);

  // The command that runs `command` on a host: for Process. The process that it starts is that of the program itself.
  std::vector<std::string> on(int host, std::vector<std::string> command) const;

  // The host's interfaces stay up, and nothing comes through, silently: neither end of a connection is told.
  void unplug(int host) const;
  void plug(int host) const;
  void deafen(int host) const;  // of what is sent to it nothing comes through, until undeafen()
  void undeafen(int host) const;
  void mute(int host) const;  // of what it sends, until unmute()
  void unmute(int host) const;
  // The cable of eth0 itself: the host sees that it has no carrier.
  void cable_out(int host) const;
  void cable_in(int host) const;
  // The command that stands in for the host's cable from now on: `program`, with the two interfaces between which it
  // carries frames as its last words. Nothing comes through unless it runs.
  std::vector<std::string> instead_of_cable(int host, std::vector<std::string> program) const;
  // The host's cable carries so much in either direction; the rest waits, and is dropped beyond half a second.
  void slow_down(int host, const std::string& rate) const;
  // Frames larger than `bytes` are lost at the host's port, and nobody is told.
  void lose_frames_above(int host, int bytes) const;
  // Unplugged first, so that nothing is said any more, then everything on it is killed. plug() to use it again.
  void power_off(int host) const;

  // Processes that run on a host, whoever started them (zombies do not).
  std::vector<pid_t> processes(int host) const;
  // Waits until none is left on any host; false if there still are at the deadline.
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
  std::vector<int> alive_;  // a keeper ends when its end of one of these does
  TemporaryFolder folder_;
};

}  // namespace ddp::testing
