// SPDX-License-Identifier: BSD-3-Clause
// A candidate: the coordinator's process in a job whose record is in etcd. Each node has a candidate. One candidate at
// a time has the job's lease and serves as the leader; the others watch. A candidate reports the leader to its agent:
//
//     candidates ── claim ──▶ etcd ── it leads ───────────▶ the agent links to this process
//                              └───── another one leads ──▶ the agent links to that node
//
// A leader that loses its lease ends, and the keeper starts another process, which watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/leader_note.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/etcd_journal.hpp"
#include "rendezvous/etcd/lease_core.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// Reads the certificates. Throws rendezvous::Error if TLS is asked for and is not there, or a file cannot be used.
rendezvous::EtcdSettings etcd_settings(const EtcdConfig& config);

// Names the leader of the job in its term.
struct Leader {
  std::int64_t epoch = 0;
  LeaderNote note;
};

// What a node's processes share about its candidacy, in a SharedPage that outlives each of them. So a coordinator that
// is started again inherits the lease of the coordinator before it, and where none can be started, the lease is revoked
// at once, instead of ending after all of its time. Only candidates read what the agent writes here.
class Candidacy {
 public:
  using Inheritance = rendezvous::LeaseConfig::Inheritance;
  // In the coordinator's process: it leads from now on; it does not lead any more.
  void lead(const Inheritance& lease) {
    leads_ = false;
    lease_ = lease.lease;
    epoch_ = lease.epoch;
    leads_ = true;
  }
  void release() { leads_ = false; }
  // In any process, once the coordinator's process is dead. Nothing: this node does not lead.
  std::optional<Inheritance> lease() const {
    if (!leads_) return std::nullopt;
    return Inheritance{lease_, epoch_};
  }

  // In the agent: notes the epoch that the agent obeys (an empty epoch changes nothing) and the node's rank in the
  // round
  // (-1: none). Candidates try to lead in the order of their ranks when a leader is gone.
  void note(const std::string& epoch, int node_rank) {
    if (!epoch.empty()) obeyed_ = rendezvous::parse_number<std::int64_t>(epoch).value_or(0);
    rank_ = node_rank;
  }
  std::string obeyed() const { return obeyed_ == 0 ? "" : std::to_string(obeyed_); }  // empty: none
  int rank() const { return rank_; }
  // In the agent: it leaves the job.
  void leave() { has_left_ = true; }
  bool has_left() const { return has_left_; }

 private:
  std::atomic<bool> leads_{false};  // the next two belong together
  std::atomic<std::int64_t> lease_{0}, epoch_{0};
  std::atomic<int> rank_{-1};
  std::atomic<std::int64_t> obeyed_{0};
  std::atomic<bool> has_left_{false};
};

class Candidate {
 public:
  // Each is called on the thread that runs the io_context of the journal.
  struct Callbacks {
    std::function<void(const Leader&)> leader;
    std::function<void()> stand_by;                   // another node leads
    std::function<void(const std::string&)> trouble;  // etcd does not answer
    std::function<void(const std::string&)> warning;
  };
  Candidate(const LaunchConfig& config, Candidacy& candidacy, LeaderNote own, Callbacks callbacks);

  enum class Wants { ToLead, ToWatch };
  std::unique_ptr<rendezvous::EtcdJournal> make_journal(rendezvous::asio::io_context& io, Wants wants);
  // The journal was claimed: this process leads.
  void claimed();
  // Whether etcd has answered who leads.
  bool has_begun() const { return leader_.has_value(); }

  // Calls leader() again, if it is known who leads. Any thread may call it, once there is a journal.
  void say_again() const;

 private:
  void on_other(std::int64_t epoch, const std::string& text);
  void now_led_by(Leader leader);

  const LaunchConfig& config_;
  Candidacy& candidacy_;
  const LeaderNote own_;
  const Callbacks callbacks_;
  rendezvous::EtcdJournal* journal_ = nullptr;
  rendezvous::asio::io_context* io_ = nullptr;  // the journal's
  std::optional<Leader> leader_;
};

}  // namespace ddp::launcher
