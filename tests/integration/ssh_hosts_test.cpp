// SPDX-License-Identifier: BSD-3-Clause
// ddprun --hosts on hosts of their own, each with a real sshd: what a head and hosts that lose power leave behind.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>

#include "tests/integration/ddprun.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

constexpr char kSshd[] = "/usr/sbin/sshd";

// node0 has the head, node1 and node2 an sshd.
class SshHosts {
 public:
  SshHosts() : hosts_(3), key_(folder_ / "key") {
    if (run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key_}).code != 0) throw std::runtime_error("no key");
    mkdir((folder_ / "home").c_str(), 0700);
    folder_.write("sshd_config", "HostKey " + key_ +
                                     "\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
                                     "AuthorizedKeysFile " +
                                     key_ + ".pub\nSetEnv HOME=" + (folder_ / "home") + "\nPrintMotd no\n");
    folder_.write("known", "node1 " + read_file(key_ + ".pub") + "node2 " + read_file(key_ + ".pub"));
    // What may stand there without harm to a job: a command, connections that jobs share, and a forwarding that fails.
    folder_.write("ssh_config",
                  "IdentityFile " + key_ + "\nUserKnownHostsFile " + (folder_ / "known") +
                      "\nRemoteCommand false\nExitOnForwardFailure yes\nControlMaster auto\nControlPath " +
                      (folder_ / "shared-%h") + "\nHost node1\nRemoteForward 22 127.0.0.1:22\n");
    for (const int host : {1, 2}) start_sshd(host);
  }

  static void skip_without_sshd() {
    const bool has_keygen = run({"sh", "-c", "command -v ssh-keygen"}).code == 0;
    if (geteuid() != 0 || access(kSshd, X_OK) != 0 || !has_keygen) skip("root and an installed sshd are needed");
  }

  const Hosts& hosts() const { return hosts_; }
  bool shares_connection(int host) const {
    return access((folder_ / ("shared-node" + std::to_string(host))).c_str(), F_OK) == 0;
  }

  void start_sshd(int host) {
    // sshd separates privileges in a folder that its package's start script makes.
    servers_[host] = std::make_unique<Process>(hosts_.on(host, {"sh", "-c", "mkdir -p /run/sshd && exec \"$0\" \"$@\"",
                                                                kSshd, "-D", "-e", "-f", folder_ / "sshd_config"}));
    servers_[host]->wait_for("Server listening");
  }

  // `words_of_agent` follow ssh's options.
  Words head(const Words& program, const Words& options = {}, const std::string& words_of_agent = "") const {
    // Silence of the other end ends ssh after 3 s rather than 15.
    const std::string ssh = "ssh -o ServerAliveInterval=1 -F " + (folder_ / "ssh_config") + words_of_agent;
    Words words = {DDPRUN_BINARY, "--hosts=node1:2,node2:1", "--launch-agent=" + ssh};
    return hosts_.on(0, words + options + program);
  }

  // Waits until no worker, and nothing of ddprun, is left on the host.
  void wait_until_empty(int host) const {
    wait_until([&] {
      const auto pids = hosts_.processes(host);
      return std::none_of(pids.begin(), pids.end(), [](pid_t pid) {
        const std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
        return name == "fake_worker\n" || name == "ddprun\n" || name == "jobkeeper\n";
      });
    });
  }

 private:
  Hosts hosts_;
  TemporaryFolder folder_;
  const std::string key_;
  std::map<int, std::unique_ptr<Process>> servers_;
};

Words fake_worker(const Words& verbs) { return Words{FAKE_WORKER_BINARY} + verbs; }

}  // namespace

TEST_CASE("hosts: with a real sshd on each of three hosts", "[launcher][integration]") {
  SshHosts::skip_without_sshd();
  const SshHosts ssh;
  Process head(ssh.head(fake_worker({"meet", "place", "1:exit=3", "wait"})));
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 3);
  CHECK(count(result.out, "met 3\n") == 3);
  CHECK_THAT(result.out, Contains("store " + Hosts::address(1) + ":"));
  CHECK(count(result.err, "failed: rank 1 on node node1") == 1);

  Process killed(ssh.head(fake_worker({"ready", "wait"})));
  killed.wait_for("ready", 3);
  for (const int host : {1, 2}) CHECK_FALSE(ssh.shares_connection(host));
  killed.signal(SIGKILL);
  for (const int host : {1, 2}) ssh.wait_until_empty(host);

  // The cable of the head comes out: no end of file, no reset, only silence.
  Process cut_off(ssh.head(fake_worker({"ready", "wait"}), {"--rdzv-conf=keep_alive_interval=1"}));
  cut_off.wait_for("ready", 3);
  ssh.hosts().unplug(0);
  const auto began = std::chrono::steady_clock::now();
  for (const int host : {1, 2}) ssh.wait_until_empty(host);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::cout << "nothing is left on the hosts " << took.count() << " s after the head's cable came out\n";
}

TEST_CASE("hosts: a launch agent may run a command on the host that runs the line", "[launcher][integration]") {
  SshHosts::skip_without_sshd();
  const SshHosts ssh;
  const Result result = run(ssh.head({"sh", "-c", "echo $INSIDE"}, {}, " {host} env 'INSIDE=\"a container\"' sh -c"));
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "a container\n") == 3);
}

TEST_CASE("hosts: a host that loses power is named, and nothing is left on the others", "[launcher][integration]") {
  SshHosts::skip_without_sshd();
  const SshHosts ssh;
  Process head(ssh.head(fake_worker({"ready", "wait"}), {"--rdzv-conf=keep_alive_interval=1"}));
  head.wait_for("ready", 3);
  ssh.hosts().power_off(2);
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 75);
  CHECK_THAT(result.err,
             Contains("host node2 is lost: ssh ended with exit code 255: Timeout, server node2 not responding."));
  ssh.wait_until_empty(1);
}

TEST_CASE("hosts: with a restart left a host that had no power for a while is started again",
          "[launcher][integration]") {
  SshHosts::skip_without_sshd();
  SshHosts ssh;
  const Words program = {"sh", "-c",
                         "echo life $TORCHELASTIC_RESTART_COUNT of $WORLD_SIZE; "
                         "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000"};
  Process head(ssh.head(program, {"--max-restarts=1", "--rdzv-conf=keep_alive_interval=1"}));
  head.wait_for("life 0 of 3", 3);
  ssh.hosts().power_off(2);
  head.wait_for("ssh ended with exit code 255: Timeout, server node2 not responding.; starting ddprun there again");
  ssh.hosts().plug(2);
  head.wait_for("host node2 cannot be started again yet: ");
  ssh.start_sshd(2);
  const Result result = head.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "life 1 of 3") == 3);
  CHECK(count(result.err, "host node2 is back\n") == 1);
  for (const int host : {1, 2}) ssh.wait_until_empty(host);
}
