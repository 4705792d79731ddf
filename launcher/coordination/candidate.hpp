// SPDX-License-Identifier: BSD-3-Clause
// The coordinator's process in a job whose record is in etcd. There is one on each node, and one of them at a time
// holds the job and serves; the others watch. What it finds out, it tells its agent:
//
//     candidates ── claim ──▶ etcd ── this one ──▶ "held here"   the agent links to this process
//                              └──── another one ▶ "held there"  the agent links to that node
//
// A holder that loses its lease ends, and the keeper starts another process, which watches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/holder_note.hpp"
#include "launcher/coordination/standing.hpp"
#include "rendezvous/etcd/client.hpp"
#include "rendezvous/etcd/etcd_journal.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// Reads the certificates. Throws rendezvous::Error if TLS is asked for and is not there, or a file cannot be used.
rendezvous::EtcdSettings etcd_settings(const EtcdConfig& config);

// Says who holds the job.
struct Holder {
  std::int64_t epoch = 0;
  HolderNote note;
};

class Candidate {
 public:
  // Each is called on the thread that runs the io_context of the journal, holder() also by say_again().
  struct Callbacks {
    std::function<void(const Holder&)> holder;
    std::function<void()> stand_by;                   // another node holds the job
    std::function<void(const std::string&)> trouble;  // etcd does not answer
    std::function<void(const std::string&)> warning;
  };
  Candidate(const LaunchConfig& config, Standing& standing, HolderNote own, Callbacks callbacks);

  enum class Wants { ToHold, ToWatch };
  std::unique_ptr<rendezvous::EtcdJournal> make_journal(rendezvous::asio::io_context& io, Wants wants);
  // The journal was claimed.
  void claimed();
  // Whether etcd has answered who holds the job.
  bool has_begun() const;

  // What the agent asks. Any thread may call them.
  void say_again() const;
  // Its place in the round, which decides who tries first when a holder is gone; -1: none.
  void set_place(int node_rank);

 private:
  void on_other(std::int64_t epoch, const std::string& text);
  void now_held_by(Holder holder);

  const LaunchConfig& config_;
  Standing& standing_;
  const HolderNote own_;
  const Callbacks callbacks_;
  rendezvous::asio::io_context* io_ = nullptr;  // the journal's
  rendezvous::EtcdJournal* journal_ = nullptr;
  mutable std::mutex mutex_;
  std::optional<Holder> holder_;  // guarded by mutex_
};

}  // namespace ddp::launcher
