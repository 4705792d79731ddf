// SPDX-License-Identifier: BSD-3-Clause
// A node's candidacy for leading a job whose record is in etcd: what outlives each process of the node, in a
// SharedPage. So a coordinator that is started again inherits the lease of the coordinator before it, and where none
// can be started, the lease is revoked at once, instead of ending after all of its time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/lease_core.hpp"

namespace ddp::launcher {

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

  // In the agent: its rank in the round, which decides which candidate tries first when a leader is gone; -1: none.
  void set_rank(int node_rank) { rank_ = node_rank; }
  int rank() const { return rank_; }
  // In the agent: the newest epoch that it has obeyed.
  void obey(const std::string& epoch) { obeyed_ = rendezvous::parse_number<std::int64_t>(epoch).value_or(0); }
  std::string obeyed() const { return obeyed_ == 0 ? "" : std::to_string(obeyed_); }  // empty: none
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

}  // namespace ddp::launcher
