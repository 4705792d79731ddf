// SPDX-License-Identifier: BSD-3-Clause
// This process's membership in a job: finds the other ranks through the store, owns the groups and the two threads
// they share. Joining and leaving are the user thread's; in between the store is asked one question only.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/backend.h"
#include "runtime/src/deadline_watch.hpp"
#include "runtime/src/process_group.hpp"
#include "runtime/src/progress_thread.hpp"
#include "runtime/src/worker_info.hpp"

namespace ddp::rendezvous {
class Store;
class StoreServer;
class TcpStore;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

struct SessionOptions {
  std::string backend = "gloo";
  std::chrono::milliseconds init_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

class Session {
 public:
  // Joins; throws rendezvous::Error.
  Session(const SessionOptions& options, const Environment& environment);
  ~Session();  // waits for operations in flight
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const WorkerInfo& info() const { return info_; }
  ProcessGroup& world() { return *world_; }
  // For the user's keys, which are apart from libddp's and from those of other sessions and restarts. Connects when
  // first asked for: a connection of its own, so that a user's call that waits delays none of ours.
  rendezvous::Store& store();

 private:
  void join_store();
  void open_user_store();
  void agree_on_world_size();
  ddp_backend_group* connect(const ddp_backend_table& backend, const Environment& environment);
  std::string who_is_missing();
  std::string ask_for_cause(std::chrono::milliseconds timeout);
  void tell_cause(const std::string& why);
  void leave_store(bool in_good_order);
  std::string key(const std::string& name) const { return key_prefix_ + name; }
  std::chrono::milliseconds time_left() const;

  WorkerInfo info_;
  SessionOptions options_;
  std::chrono::steady_clock::time_point init_deadline_;
  std::string key_prefix_;
  std::unique_ptr<rendezvous::StoreServer> hosted_store_;  // on rank 0, where the launcher hosts none
  std::unique_ptr<rendezvous::TcpStore> store_;            // null in a world of one
  std::once_flag user_store_once_;
  std::unique_ptr<rendezvous::Store> user_store_base_;
  std::unique_ptr<rendezvous::Store> user_store_;
  std::unique_ptr<ProgressThread> progress_;
  std::unique_ptr<DeadlineWatch> deadlines_;
  std::unique_ptr<ProcessGroup> world_;
};

}  // namespace ddp::runtime
