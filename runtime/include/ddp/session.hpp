// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A process's place in its job, and how it joins.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/store.hpp"

namespace ddp {

namespace detail {
struct SessionDeleter {
  void operator()(ddp_session* session) const { ddp_session_destroy(session); }
};
}  // namespace detail

/// This process's membership in a job. Moves, does not copy; ending it leaves the groups.
class Session {
 public:
  /// From ddp.h; owns it from now on.
  explicit Session(ddp_session* session) : session_(session) {}
  /// The group of all ranks.
  ProcessGroup world() const { return ProcessGroup(ddp_session_world(session_.get())); }
  /// A group of these ranks of the job, in ascending order. Only its members have to call this; others get an empty
  /// group at once. Throws Error that names who did not come within the session's init_timeout, or was lost meanwhile.
  /// Any thread may call. PyTorch's new_group.
  ProcessGroup new_group(const std::vector<int>& ranks, const GroupOptions& options = {}) const {
    static const std::int32_t none = 0;
    const ddp_group_options c = options.c();
    ddp_group* group = nullptr;
    detail::check(ddp_group_new(session_.get(), ranks.empty() ? &none : ranks.data(), ranks.size(), &c, &group));
    return ProcessGroup(group);
  }
  /// Ends the session now: waits for operations in flight, leaves all groups. So does the destructor. PyTorch's
  /// destroy_process_group.
  void destroy() { session_.reset(); }
  /// A store that all ranks of the job share, for keys of your own: they collide with nobody's, nor with those of an
  /// earlier restart. Connects when first asked for. A view; the session's timeout is its timeout.
  Store store() const {
    ddp_store* store = nullptr;
    detail::check(ddp_session_store(session_.get(), &store));
    return Store(store);
  }
  /// This process's rank in the job, from 0 on.
  int rank() const { return world().rank(); }
  /// How many ranks the job has.
  int world_size() const { return world().size(); }
  /// This process's rank among those of its node, from 0 on.
  int local_rank() const { return ddp_session_local_rank(session_.get()); }
  /// How many ranks of the job this node has.
  int local_world_size() const { return ddp_session_local_world_size(session_.get()); }
  /// How often the job was restarted before this process was started.
  int restart_count() const { return ddp_session_restart_count(session_.get()); }

 private:
  std::unique_ptr<ddp_session, detail::SessionDeleter> session_;
};

/// How to join a job.
struct InitOptions {
  /// What carries the collectives: "gloo", "nccl", "cpu:gloo,cuda:nccl", or a plug-in's name. Empty: "gloo".
  std::string backend = {};
  Milliseconds init_timeout = std::chrono::seconds(60);  ///< for finding all other ranks
  Milliseconds timeout = std::chrono::minutes(30);       ///< for each collective, from issue to end
  /// Where the ranks meet: "env://", "tcp://HOST:PORT" or "file:///PATH", each with "?rank=0&world_size=2" behind it or
  /// not. Empty: "env://".
  std::string init_method = {};
  int rank = 0;              ///< counts if world_size is given
  int world_size = 0;        ///< 0: as init_method or the environment says
  int local_rank = 0;        ///< counts if local_world_size is given
  int local_world_size = 0;  ///< 0: as the environment says; 1 if it does not
  /// The GPU this process works on if there is a backend for CUDA memory, such as "cuda:0", of those that
  /// CUDA_VISIBLE_DEVICES leaves. Empty: that of the local rank.
  std::string device = {};
};

/// Joins a job and connects to all its ranks. Without options, the one that the environment describes, as ddprun,
/// torchrun, srun and mpirun set it; with nothing set, the process is a world of its own. See ddp_session_init in
/// ddp.h for who reads what.
inline Session init_process_group(const InitOptions& options = {}) {
  ddp_session_options c = DDP_SESSION_OPTIONS_INIT;
  c.backend = options.backend.c_str();
  c.init_timeout_ms = options.init_timeout.count();
  c.timeout_ms = options.timeout.count();
  c.init_method = options.init_method.c_str();
  c.rank = options.rank;
  c.world_size = options.world_size;
  c.local_rank = options.local_rank;
  c.local_world_size = options.local_world_size;
  c.device = options.device.c_str();
  ddp_session* session = nullptr;
  detail::check(ddp_session_init(&c, &session));
  return Session(session);
}

/// @name The default group
/// The world of this process's first session that has not ended. Source: torch.distributed's functions of these names.
/// @{

/// Is there one?
inline bool is_initialized() { return ddp_group_default() != nullptr; }
/// Throws Error if there is none.
inline ProcessGroup default_group() {
  ddp_group* group = ddp_group_default();
  if (group != nullptr) return ProcessGroup(group);
  throw Error(Status::InvalidArgument, "there is no default process group: call ddp::init_process_group first");
}
/// This process's rank in the default group.
inline int get_rank() { return default_group().rank(); }
/// In another; -1 if this process is no member.
inline int get_rank(const ProcessGroup& group) { return group.rank(); }
/// How many ranks the default group has.
inline int get_world_size() { return default_group().size(); }
/// Another; -1 if this process is no member.
inline int get_world_size(const ProcessGroup& group) { return group.size(); }
/// What carries the default group, such as "gloo".
inline std::string get_backend() { return default_group().backend(); }
/// Another.
inline std::string get_backend(const ProcessGroup& group) { return group.backend(); }

/// @}

}  // namespace ddp
