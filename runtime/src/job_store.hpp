// SPDX-License-Identifier: BSD-3-Clause
// The store that all ranks of the job share: hosts it on rank 0 where the launcher does not, connects to it, and says
// in it who has joined, who gave up and why. In a world of one there is none but the user's.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/src/worker_info.hpp"

namespace ddp::rendezvous {
class Store;
class StoreServer;
class TcpStore;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

class JobStore {
 public:
  struct Timeouts {
    std::chrono::milliseconds init;   // until all ranks have joined
    std::chrono::milliseconds calls;  // of the user's store
  };

  // Joins: connects and agrees with rank 0 on the world's size. Throws rendezvous::Error.
  JobStore(const WorkerInfo& info, const Timeouts& timeouts);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // libddp's own connection; only where there is more than one rank. Its keys are to be made by key().
  rendezvous::Store& connection();
  std::string key(const std::string& name) const { return key_prefix_ + name; }
  // This side's numeric address on that connection.
  std::string local_address() const;

  // For the user's keys, which are apart from libddp's and from those of other sessions and restarts. Connects when
  // first asked for: a connection of its own, so that a user's call that waits delays none of ours.
  rendezvous::Store& for_user();

  std::chrono::milliseconds time_left() const;  // until Timeouts::init has passed; at least 1 ms
  std::string who_is_missing();                 // in words, for whoever has waited long enough
  // Why the others are gone, as far as anybody said so; else empty. Never throws.
  std::string ask_for_cause(std::chrono::milliseconds timeout);
  void tell_cause(const std::string& why);  // never throws
  // To be called before the destructor. A store that rank 0 hosts stays until all have left, but not for long.
  void leave(bool in_good_order);

 private:
  void join();
  void agree_on_world_size();
  void open_for_user();

  const WorkerInfo info_;
  const Timeouts timeouts_;
  const std::chrono::steady_clock::time_point init_deadline_;
  std::string key_prefix_;
  std::unique_ptr<rendezvous::StoreServer> hosted_;  // on rank 0, where the launcher hosts none
  std::unique_ptr<rendezvous::TcpStore> connection_;
  std::once_flag for_user_once_;
  std::unique_ptr<rendezvous::Store> for_user_base_;
  std::unique_ptr<rendezvous::Store> for_user_;
};

}  // namespace ddp::runtime
