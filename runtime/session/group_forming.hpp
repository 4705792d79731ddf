// SPDX-License-Identifier: BSD-3-Clause
// How a group comes to be: its members meet in the store, see that they mean the same group, and connect.
//
//     members   the list of the first to come, which all others must have too
//     joined/R  rank R of the job is here
//     count     of them; who makes it complete says so in
//     go        "all", or why this group will never be, for whoever comes later or waits still
//
// One thread forms; another may end it when it learns that a member is dead.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/backend.h"
#include "rendezvous/base/error.hpp"
#include "runtime/device/device_collectives.hpp"
#include "runtime/session/group_members.hpp"

namespace ddp::rendezvous {
class Store;
}  // namespace ddp::rendezvous

namespace ddp::runtime {

struct GroupPlan {
  std::string name;
  std::string key_prefix;  // of its keys in the store: equal on all members, nobody else's
  Members members;
  int rank = 0;                                                         // this process's within the group
  const ddp_backend_table* backend = nullptr;                           // null: none for the CPU's memory
  std::shared_ptr<collectives::CudaDevice> device = nullptr;            // null: none for a GPU's
  std::string address;                                                  // of this process, for the other members
  std::chrono::milliseconds init_timeout{0};                            // from now until all are connected
  const char* hint = "";                                                // what to look at if a member never comes
  std::function<std::string(std::chrono::milliseconds)> ask_for_cause;  // as of ProcessGroup::Config
};

// What a group talks to its members by. Who has it frees `host`.
struct GroupConnections {
  ddp_backend_group* host = nullptr;
  std::unique_ptr<DeviceCollectives> device = nullptr;
};

class GroupForming {
 public:
  // store: on a connection that nobody else waits on.
  GroupForming(GroupPlan plan, rendezvous::Store& store);
  GroupForming(const GroupForming&) = delete;
  GroupForming& operator=(const GroupForming&) = delete;

  const GroupPlan& plan() const { return plan_; }

  // Returns once every member is here. Throws rendezvous::Error that names who is missing, or says who means what.
  void meet();
  // Connects to all members, which are here or about to come. Likewise.
  // address: at which the others reach this process.
  GroupConnections connect(const std::string& address);

  // From another thread: what runs fails soon, with ErrorCode::PeerLost and this reason.
  void end(const std::string& why);
  void throw_if_ended();

 private:
  using Clock = std::chrono::steady_clock;
  std::string key(const std::string& name) const { return plan_.key_prefix + name; }
  std::chrono::milliseconds time_left() const;
  void agree_on_members();
  std::string wait_for_go();
  std::string settle(const std::string& verdict);
  std::string not_done();
  ddp_backend_group* connect_host();
  std::unique_ptr<DeviceCollectives> connect_device();
  std::string known_cause(const std::string& backends_words);
  ddp_backend_status open(ddp_backend_error& error);
  int own_rank() const;
  std::string attempt() const;

  const GroupPlan plan_;
  rendezvous::Store& store_;
  const Clock::time_point deadline_;
  std::string address_;
  std::mutex mutex_;
  std::string ended_because_;
  std::atomic<bool> is_ended_ = false;       // likewise
  ddp_backend_group* connection_ = nullptr;  // being made
};

}  // namespace ddp::runtime
