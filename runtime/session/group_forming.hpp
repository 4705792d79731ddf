// SPDX-License-Identifier: BSD-3-Clause
// Forms a group: its members meet in the store, check that they mean the same group, and connect. Keys in the store:
//
//     members   the first member's list and backends, which all others must match
//     joined/R  exists once rank R of the job is here
//     count     number of members that are here; the one that makes it complete sets
//     go        "all", or why the group cannot be formed, for members that come later or still wait
//
// One thread forms the group. Another may end the forming when it learns that a member is dead.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ddp/backend.h"
#include "rendezvous/base/error.hpp"
#include "runtime/device/device_collectives.hpp"
#include "runtime/session/group_members.hpp"

namespace ddp::rendezvous {
class Store;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

struct GroupPlan {
  std::string name;
  std::string key_prefix;  // begins its keys in the store: equal on all members, used by no other group
  Members members;
  int rank = 0;                                                         // this process's rank in the group
  const ddp_backend_table* backend = nullptr;                           // null: no backend for CPU memory
  std::shared_ptr<collectives::CudaDevice> device = nullptr;            // null: no backend for GPU memory
  std::string address;                                                  // at which the other members reach this process
  std::chrono::milliseconds init_timeout{0};                            // from now until all are connected
  const char* hint = "";                                                // what to check if a member never comes
  std::function<std::string(std::chrono::milliseconds)> ask_for_cause;  // see ProcessGroup::Config
};

// The connections of a group to its members. The owner frees `host`.
struct GroupConnections {
  ddp_backend_group* host = nullptr;
  std::unique_ptr<DeviceCollectives> device = nullptr;
};

class GroupForming {
 public:
  // `store` has a connection that no other thread waits on.
  GroupForming(GroupPlan plan, rendezvous::Store& store);
  GroupForming(const GroupForming&) = delete;
  GroupForming& operator=(const GroupForming&) = delete;

  const GroupPlan& plan() const { return plan_; }

  // Throws rendezvous::Error if this member's list or backends are not those of the first member to come.
  void agree();
  // Agrees, and returns once every member is here. Throws rendezvous::Error that names missing members, or says how
  // ranks disagree.
  void meet();
  // Connects to all members, which are here or about to come. `address` is where they reach this process. Throws
  // rendezvous::Error, as meet() does.
  GroupConnections connect(const std::string& address);

  // Makes the running function fail soon with ErrorCode::PeerLost and this reason. Called by another thread.
  void end(const std::string& why);
  void throw_if_ended();

 private:
  using Clock = std::chrono::steady_clock;
  std::string key(const std::string& name) const { return plan_.key_prefix + name; }
  std::chrono::milliseconds time_left() const;
  [[noreturn]] void throw_verdict(const std::string& verdict) const;
  std::string wait_for_go();
  std::string give_up();
  std::string settle(const std::string& verdict);
  std::string not_done();
  ddp_backend_group* connect_host();
  std::unique_ptr<DeviceCollectives> connect_device();
  std::string known_cause(const std::string& backend_text);
  ddp_backend_status open(ddp_backend_error& error);
  int own_rank() const;
  std::string attempt() const;

  const GroupPlan plan_;
  rendezvous::Store& store_;
  const Clock::time_point deadline_;
  std::string address_;
  std::mutex mutex_;
  std::string ended_because_;
  std::atomic<bool> is_ended_ = false;       // whether ended_because_ is set, for NcclGroup to poll
  ddp_backend_group* connection_ = nullptr;  // while it is being made
};

}  // namespace ddp::runtime
