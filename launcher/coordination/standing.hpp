// SPDX-License-Identifier: BSD-3-Clause
// What the processes of one node know of its right to coordinate a job whose record is in etcd, in memory that they
// share: so a coordinator that is started again inherits the lease of the one before, and where none can be started,
// the lease is given up at once, instead of after all of its time.
#pragma once

#include <optional>
#include <string>

#include "launcher/process/shared_page.hpp"
#include "rendezvous/etcd/lease_core.hpp"

namespace ddp::launcher {

class Standing {
 public:
  // Makes the memory: call it before the forks. Throws rendezvous::Error.
  Standing();
  ~Standing();
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

  using Inheritance = rendezvous::LeaseConfig::Inheritance;
  // In the coordinator's process: it holds the job; it does not any more.
  void hold(const Inheritance& held);
  void release();
  // In any process, once the coordinator's is dead.
  std::optional<Inheritance> held() const;

  // In the agent: the newest epoch that it has obeyed.
  void obey(const std::string& epoch);
  std::string obeyed() const;  // empty: none
  // In the agent: it leaves the job.
  void leave();
  bool has_left() const;

 private:
  struct Page;
  SharedPage<Page> page_;
};

}  // namespace ddp::launcher
