// SPDX-License-Identifier: BSD-3-Clause
// A candidate: the coordinator's process in a job whose record is in etcd. There is one on each node, and one of them
// at a time has the job's lease and serves, as the leader; the others watch. A candidate reports who leads to its
// agent:
//
//     candidates ── claim ──▶ etcd ── it leads ───────────▶ the agent links to this process
//                              └───── another one leads ──▶ the agent links to that node
//
// A leader that loses its lease ends, and the keeper starts another process, which watches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/candidacy.hpp"
#include "launcher/coordination/leader_note.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/etcd_journal.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// Reads the certificates. Throws rendezvous::Error if TLS is asked for and is not there, or a file cannot be used.
rendezvous::EtcdSettings etcd_settings(const EtcdConfig& config);

// Names the leader of the job in its term.
struct Leader {
  std::int64_t epoch = 0;
  LeaderNote note;
};

class Candidate {
 public:
  // Each is called on the thread that runs the io_context of the journal, leader() also by say_again().
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
  bool has_begun() const;

  // What the agent asks. Any thread may call it.
  void say_again() const;

 private:
  void on_other(std::int64_t epoch, const std::string& text);
  void now_led_by(Leader leader);

  const LaunchConfig& config_;
  Candidacy& candidacy_;
  const LeaderNote own_;
  const Callbacks callbacks_;
  rendezvous::EtcdJournal* journal_ = nullptr;
  mutable std::mutex mutex_;
  std::optional<Leader> leader_;  // guarded by mutex_
};

}  // namespace ddp::launcher
