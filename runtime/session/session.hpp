// SPDX-License-Identifier: BSD-3-Clause
// This process's membership in a job: finds the other ranks through the job's store, forms groups and owns them, with
// the threads they need. The user's thread joins and leaves.
//
// Threads of a session: one watches the deadlines of all groups, one waits for reports of failures. Each group has a
// thread for asynchronous operations, so that a group that waits delays no other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/backend_names.hpp"
#include "ddp/backend.h"
#include "runtime/base/deadline_watch.hpp"
#include "runtime/diagnosis/call_log.hpp"
#include "runtime/diagnosis/failure_watch.hpp"
#include "runtime/group/process_group.hpp"
#include "runtime/session/group_forming.hpp"
#include "runtime/session/group_members.hpp"
#include "runtime/session/identity/worker_info.hpp"
#include "runtime/session/job_store.hpp"
#include "runtime/session/survival.hpp"

namespace ddp::runtime {

struct SessionOptions {
  InitArguments arguments;
  std::string device = {};  // the GPU of this process, as choose_device() parses it
  collectives::BackendNames backends = collectives::parse_backend_names("");
  std::chrono::milliseconds init_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

struct GroupOptions {
  std::string name = {};                 // empty: made from the members
  std::string backend = {};              // empty: the session's, or for a split the parent's
  std::chrono::milliseconds timeout{0};  // for its operations; 0: the session's, or for a split the parent's
};

class Session {
 public:
  // Joins; throws rendezvous::Error.
  Session(const SessionOptions& options, const Environment& environment);
  ~Session();  // waits for operations in flight
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const WorkerInfo& info() const { return info_; }
  ProcessGroup& world() { return *world_->operations; }
  rendezvous::Store& store() { return store_->for_user(); }

  // Makes a group of these ranks of the job, in ascending order. All of them must call it; other ranks may, and get
  // nullptr. Throws rendezvous::Error.
  ProcessGroup* new_group(const Members& members, const GroupOptions& options);
  // Splits the parent, all of whose members must call it. Ranks that give the same color make a group, ordered by key,
  // then by rank in the parent. Returns nullptr for color -1. Throws rendezvous::Error.
  ProcessGroup* split(ProcessGroup& parent, std::int64_t color, std::int64_t key, const GroupOptions& options);
  // Waits for the group's operations in flight and closes its connections. The world cannot be destroyed.
  void destroy(ProcessGroup& group);

  // Survival: see survival.hpp. say_stays() returns whether this process stays in the job when others fail; then the
  // report of any failure ends all groups. Throws rendezvous::Error if this session cannot go on in another round.
  bool say_stays(bool stays);
  // Leaves all groups, which no longer exist then, waits for the next round of the job, and joins it with a new world.
  // Throws rendezvous::Error if there is none.
  void rejoin();

  bool owns(const ProcessGroup& group);
  // Returns the ranks of the job in the order of the group's ranks.
  const Members& members_of(const ProcessGroup& group);
  const std::string& backend_of(const ProcessGroup& group);

 private:
  struct Group {
    std::string id;  // names its keys in the store
    std::string name;
    Members members;
    collectives::BackendNames backends;
    std::string backend;  // `backends` as text
    std::chrono::milliseconds timeout{0};
    int splits = 0;  // number of splits so far
    std::unique_ptr<ProcessGroup> operations;
  };
  using GroupPointer = std::unique_ptr<Group>;

  class RegisteredForming;
  void join(const Environment& environment);
  void watch_for_failures(const Environment& environment);
  bool ends(const ReportedFailure& failure, const Members& members) const;
  void leave_round(const std::string& why);
  void form_world(const Environment& environment);
  // `device` is set for a split, whose communicator exists already.
  ProcessGroup* form(GroupPointer group, std::unique_ptr<DeviceCollectives> device = nullptr);
  Group& add(GroupPointer group, const GroupPlan& plan, GroupConnections connections);
  GroupConnections connect_alone(const GroupPlan& plan) const;
  std::shared_ptr<collectives::CudaDevice> device_for(const collectives::BackendNames& backends);
  std::vector<SplitChoice> exchange(Group& parent, const SplitChoice& mine, int split);
  void log_formed(const Group& group) const;
  std::string key_prefix(const Group& group) const;
  GroupPlan plan(const Group& group);
  void name_new(Group& group, const std::string& given);
  std::string ask_for_cause(std::chrono::milliseconds timeout);
  void on_failure(const ReportedFailure& failure);
  Group& find(const ProcessGroup& group);

  WorkerInfo info_;
  SessionOptions options_;
  const DebugLevel debug_;
  const std::size_t flight_recorder_size_;
  std::unique_ptr<JobStore> store_;
  std::string address_;                              // at which the other ranks reach this one; empty in a world of one
  std::shared_ptr<collectives::CudaDevice> device_;  // null until a group has a backend for GPU memory
  DeadlineWatch deadlines_;
  std::unique_ptr<CallLog> call_log_;    // set with DDP_DEBUG=detail
  std::mutex mutex_;                     // guards the members below
  std::vector<GroupPointer> groups_;     // in the order they were formed, the world first
  std::vector<GroupForming*> formings_;  // groups being formed
  std::set<std::string> names_;          // names given to groups, past ones included
  std::map<std::string, int> made_of_;   // number of groups without a given name, by their members
  Group* world_ = nullptr;
  std::unique_ptr<FailureWatch> failures_;  // set if the launcher hosts the store, and failures may be reported
  std::optional<Survival> survival_;        // set once this process has said that it stays
  std::atomic<bool> stays_{false};
};

}  // namespace ddp::runtime
