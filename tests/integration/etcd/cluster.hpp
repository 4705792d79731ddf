// SPDX-License-Identifier: BSD-3-Clause
// A real etcd for tests: one that CTest has brought up for all, or a cluster of the test's own, whose members may be
// killed and frozen. Both come from scripts/clusters/etcd; where that cannot be, the test is skipped.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/etcd_journal.hpp"
#include "rendezvous/net/asio.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

namespace ddp::testing {

using Words = std::vector<std::string>;

class EtcdCluster {
 public:
  // The one that all tests share: one member, without TLS and users. Use ids of your own.
  static EtcdCluster shared() { return EtcdCluster(); }
  explicit EtcdCluster(const Words& options) : EtcdCluster(Words(), options) {}
  // On a host of the test's own, which gets addresses for it; other hosts reach it there.
  EtcdCluster(const Hosts& hosts, int host, const Words& options);
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  // Does "kill 2", "fill" and others, and returns what it prints.
  std::string operator()(const std::string& order, const Words& more = {}) const;
  int leader() const { return std::stoi((*this)("leader")); }
  std::string endpoints() const;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  // Plain and without a user. Unless a test is about the deadline of a request, it is one that only what hangs reaches.
  rendezvous::EtcdSettings settings(std::chrono::milliseconds deadline = kDeadline / 2) const;

 private:
  EtcdCluster();
  EtcdCluster(Words before, const Words& options);
  Words command(const Words& words) const;
  Words before_;  // goes before each command
  std::string folder_;
  std::optional<TemporaryFolder> own_;
  std::optional<Process> keeper_;  // all processes of the cluster end with it
};

// Runs everything on the test's own thread.
class EtcdLoop {
 public:
  rendezvous::asio::io_context io{1};
  // Throws with the words if the condition does not come true.
  void until(const std::function<bool()>& is_true, const std::string& what);
  rendezvous::EtcdOutcome ask(rendezvous::EtcdClient& client, rendezvous::EtcdRequest request);
  // Throws with the server's words if it is a refusal.
  rendezvous::EtcdAnswer answer(rendezvous::EtcdClient& client, rendezvous::EtcdRequest request);

 private:
  rendezvous::asio::executor_work_guard<rendezvous::asio::io_context::executor_type> work_{io.get_executor()};
};

// A process that wants to lead a job, and notes what comes.
class EtcdCandidate {
 public:
  EtcdCandidate(EtcdLoop& loop, rendezvous::EtcdSettings settings, rendezvous::LeaseConfig config);

  void claimed() {
    loop_.until([this] { return claim.has_value() || !lost.empty(); }, "a claim: " + words());
  }
  // Writes and waits until it is kept.
  void keep(const std::string& content);
  std::string words() const;

  std::optional<rendezvous::JournalClaim> claim;
  std::string lost, other;
  std::uint64_t kept = 0, written = 0;
  int doubts = 0, sure = 0;
  std::vector<std::string> troubles;
  std::optional<rendezvous::EtcdJournal> journal;

 private:
  EtcdLoop& loop_;
};

// A configuration for a job whose id no other test has.
rendezvous::LeaseConfig lease_of_own_job();
rendezvous::LeaseConfig rival_of(rendezvous::LeaseConfig config);

}  // namespace ddp::testing
