// SPDX-License-Identifier: BSD-3-Clause
// This process's membership in a job: finds the other ranks through the job's store, owns the groups and the
// thread that watches their deadlines. Joining and leaving are the user thread's; in between the store is asked one
// question only.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/backend.h"
#include "collectives/backend_names.hpp"
#include "runtime/src/call_log.hpp"
#include "runtime/src/deadline_watch.hpp"
#include "runtime/src/job_store.hpp"
#include "runtime/src/process_group.hpp"
#include "runtime/src/worker_info.hpp"

namespace ddp::runtime {

struct SessionOptions {
  InitArguments arguments;
  collectives::BackendNames backends = collectives::parse_backend_names("");
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
  rendezvous::Store& store() { return store_->for_user(); }

 private:
  void observe(ProcessGroup::Config& config, const Environment& environment);
  ddp_backend_group* connect(const std::string& name, const ddp_backend_table& backend);

  WorkerInfo info_;
  SessionOptions options_;
  std::unique_ptr<JobStore> store_;
  std::string address_;  // at which the others reach this rank; empty in a world of one
  DeadlineWatch deadlines_;
  std::unique_ptr<CallLog> call_log_;  // with DDP_DEBUG=detail
  std::unique_ptr<ProcessGroup> world_;
};

}  // namespace ddp::runtime
