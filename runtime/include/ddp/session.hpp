// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sessions: how a process joins its job, and what it then knows about itself. Operations of the default group are
/// functions, as in torch.distributed:
///
///     ddp::Session session = ddp::init_process_group("gloo");
///     double loss = ...;
///     ddp::all_reduce(loss, ddp::ReduceOp::Avg);        // of all ranks of the job
///
/// Each does what the method of its name does in ProcessGroup, whose descriptions hold here too. All throw Error with
/// Status::InvalidArgument if there is no default group. The others, such as all_reduce_async(), are methods of
/// ddp::default_group().
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/store.hpp"
#include "ddp/work.hpp"

namespace ddp {

namespace detail {
struct SessionDeleter {
  void operator()(ddp_session* session) const { ddp_session_destroy(session); }
};
}  // namespace detail

/// This process's membership in a job. It can be moved but not copied; ending it leaves the groups.
class Session {
 public:
  /// Takes ownership of a session of ddp.h.
  explicit Session(ddp_session* session) : session_(session) {}
  /// Returns the handle of ddp.h, which this object owns.
  ddp_session* c() const { return session_.get(); }
  /// Returns the group of all ranks.
  ProcessGroup world() const { return ProcessGroup(ddp_session_world(session_.get())); }
  /// Makes a group of these ranks of the job, in ascending order. Only its members have to call this; others get an
  /// empty group at once. Throws Error that names the ranks that did not come within the session's init_timeout, or
  /// were lost meanwhile. Any thread may call. Source: torch.distributed.new_group.
  ProcessGroup new_group(const std::vector<int>& ranks, const GroupOptions& options = {}) const {
    static const std::int32_t none = 0;
    const ddp_group_options c = options.c();
    ddp_group* group = nullptr;
    detail::check(ddp_group_new(session_.get(), ranks.empty() ? &none : ranks.data(), ranks.size(), &c, &group));
    return ProcessGroup(group);
  }
  /// Ends the session now, as the destructor does: waits for operations in flight and leaves all groups. Source:
  /// torch.distributed.destroy_process_group.
  void destroy() { session_.reset(); }
  /// Returns a store that all ranks of the job share, for keys of your own: they never collide with those of libddp, of
  /// other programs or of an earlier restart. The first call connects. The result is a view, with the session's
  /// timeout.
  Store store() const {
    ddp_store* store = nullptr;
    detail::check(ddp_session_store(session_.get(), &store));
    return Store(store);
  }
  /// Returns this process's rank in the job, starting at 0.
  int rank() const { return world().rank(); }
  /// Returns the number of ranks of the job.
  int world_size() const { return world().size(); }
  /// Returns this process's rank among the ranks of its node, starting at 0.
  int local_rank() const { return ddp_session_local_rank(session_.get()); }
  /// Returns the number of ranks of the job on this node.
  int local_world_size() const { return ddp_session_local_world_size(session_.get()); }
  /// Returns how many times the job was restarted before this process was started.
  int restart_count() const { return ddp_session_restart_count(session_.get()); }

 private:
  std::unique_ptr<ddp_session, detail::SessionDeleter> session_;
};

/// Shows the step that this process has reached to its launcher: `ddprun ps` lists it. It takes less than a
/// microsecond, and without ddprun it does nothing. Any thread may call.
inline void progress(std::int64_t step) noexcept { ddp_progress(step); }

/// How to join a job.
struct InitOptions {
  /// Backends that carry the collectives: "ddp", "gloo", "nccl", "cpu:ddp,cuda:nccl", or a plug-in's name. Empty:
  /// "ddp".
  std::string backend = {};
  Milliseconds init_timeout = std::chrono::seconds(60);  ///< for finding all other ranks
  Milliseconds timeout = std::chrono::minutes(30);       ///< for each collective, from issue to end
  /// Place where the ranks meet: "env://", "tcp://HOST:PORT" or "file:///PATH", optionally followed by
  /// "?rank=0&world_size=2". Empty: "env://".
  std::string init_method = {};
  int rank = 0;              ///< used only if world_size is given
  int world_size = 0;        ///< 0: as init_method or the environment says
  int local_rank = 0;        ///< used only if local_world_size is given
  int local_world_size = 0;  ///< 0: as the environment says; 1 if it does not
  /// GPU of this process, such as "cuda:0", if there is a backend for CUDA memory. It counts the devices that
  /// CUDA_VISIBLE_DEVICES leaves. Empty: the one with the number of the local rank.
  std::string device = {};
  /// Store at which the ranks meet instead, with rank and world_size: a TcpStore, a FileStore, or a PrefixStore of one,
  /// to the same place on every rank. The session makes connections of its own; the store may go before it.
  std::optional<Store> store = {};
  /// Name of the session: ranks that give the same name at the same place meet, whatever other sessions they have.
  /// Empty: the first sessions of all processes meet, then their second ones, and so on.
  std::string name = {};
};

/// Joins a job and connects to all its ranks. Without options it is the job that the environment describes, as ddprun,
/// torchrun, srun or mpirun has set it; with nothing set, the process is a world of its own. ddp_session_init() lists
/// the variables that are read.
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
  c.store = options.store ? options.store->c() : nullptr;
  c.name = options.name.c_str();
  ddp_session* session = nullptr;
  detail::check(ddp_session_init(&c, &session));
  return Session(session);
}

/// Joins a job as above, with the backend of this name: `init_process_group("gloo")`.
template <typename Name, std::enable_if_t<std::is_convertible_v<const Name&, std::string>, int> = 0>
Session init_process_group(const Name& backend, InitOptions options = {}) {
  options.backend = backend;
  return init_process_group(options);
}

/// @name What this process can use
/// None of these needs a session, and none throws. Source: torch.distributed's functions of these names.
/// @{

/// Returns true: this is a build with process groups. For programs that were written for PyTorch.
inline bool is_available() { return true; }
/// Returns whether a session may have this backend, such as "gloo", "nccl" or a plug-in's name. More at
/// ddp_backend_is_available().
inline bool is_backend_available(const std::string& backend) { return ddp_backend_is_available(backend.c_str()) != 0; }
/// Returns whether the backend "gloo" is there.
inline bool is_gloo_available() { return is_backend_available("gloo"); }
/// Returns whether the backend "nccl" can be used: NCCL, the CUDA driver and a GPU are there. It starts the driver, so
/// spawn() comes before.
inline bool is_nccl_available() { return is_backend_available("nccl"); }
/// Returns whether the backend "mpi", a plug-in, is there.
inline bool is_mpi_available() { return is_backend_available("mpi"); }
/// Returns whether ddprun or torchrun has started this process, or one above it.
inline bool is_torchelastic_launched() { return std::getenv("TORCHELASTIC_RUN_ID") != nullptr; }

/// @}

/// @name The default group
/// The world of this process's first session that has not ended. Source: torch.distributed's functions of these names.
/// @{

/// Returns whether there is a default group.
inline bool is_initialized() { return ddp_group_default() != nullptr; }
/// Returns the default group. Throws Error if there is none.
inline ProcessGroup default_group() {
  ddp_group* group = ddp_group_default();
  if (group != nullptr) return ProcessGroup(group);
  throw Error(Status::InvalidArgument, "there is no default process group: call ddp::init_process_group first");
}
/// Returns this process's rank in the default group.
inline int get_rank() { return default_group().rank(); }
/// Returns this process's rank in a group; -1 if it is not a member.
inline int get_rank(const ProcessGroup& group) { return group.rank(); }
/// Returns the number of ranks of the default group.
inline int get_world_size() { return default_group().size(); }
/// Returns the number of ranks of a group; -1 if this process is not a member.
inline int get_world_size(const ProcessGroup& group) { return group.size(); }
/// Returns the name of the default group's backend, such as "ddp".
inline std::string get_backend() { return default_group().backend(); }
/// Returns the name of a group's backend.
inline std::string get_backend(const ProcessGroup& group) { return group.backend(); }

/// @}

/// Reduces in place, over all ranks: ProcessGroup::all_reduce().
inline void all_reduce(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) {
  default_group().all_reduce(buffer, reduction, timeout);
}
/// Reduces in place on root: ProcessGroup::reduce().
inline void reduce(Buffer buffer, const Reduction& reduction = {}, int root = 0,
                   Milliseconds timeout = kDefaultTimeout) {
  default_group().reduce(buffer, reduction, root, timeout);
}
/// Copies root's buffer into every rank's: ProcessGroup::broadcast().
inline void broadcast(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) {
  default_group().broadcast(buffer, root, timeout);
}
/// Gathers every rank's input on every rank: ProcessGroup::all_gather().
inline void all_gather(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) {
  default_group().all_gather(input, output, timeout);
}
/// Gathers every rank's input on root: ProcessGroup::gather().
inline void gather(ConstBuffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) {
  default_group().gather(input, output, root, timeout);
}
/// Distributes root's input: ProcessGroup::scatter().
inline void scatter(ConstBuffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) {
  default_group().scatter(input, output, root, timeout);
}
/// Reduces the inputs and gives each rank one part: ProcessGroup::reduce_scatter().
inline void reduce_scatter(ConstBuffer input, Buffer output, const Reduction& reduction = {},
                           Milliseconds timeout = kDefaultTimeout) {
  default_group().reduce_scatter(input, output, reduction, timeout);
}
/// Sends an equal part of each rank's input to every rank: ProcessGroup::all_to_all().
inline void all_to_all(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) {
  default_group().all_to_all(input, output, timeout);
}
/// Waits until every rank has called it: ProcessGroup::barrier().
inline void barrier(Milliseconds timeout = kDefaultTimeout) { default_group().barrier(timeout); }
/// Waits until every rank has called it, and names missing ranks: ProcessGroup::monitored_barrier().
inline void monitored_barrier(Milliseconds timeout = kDefaultTimeout, bool wait_all_ranks = false) {
  default_group().monitored_barrier(timeout, wait_all_ranks);
}
/// Sends the buffer to another rank: ProcessGroup::send().
inline void send(ConstBuffer buffer, int destination, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) {
  default_group().send(buffer, destination, tag, timeout);
}
/// Returns the rank from which the buffer was received: ProcessGroup::recv().
inline int recv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) {
  return default_group().recv(buffer, source, tag, timeout);
}
/// Issues send() without waiting: ProcessGroup::isend().
[[nodiscard]] inline Work isend(ConstBuffer buffer, int destination, std::uint32_t tag = 0,
                                Milliseconds timeout = kDefaultTimeout) {
  return default_group().isend(buffer, destination, tag, timeout);
}
/// Issues recv() without waiting: ProcessGroup::irecv().
[[nodiscard]] inline Work irecv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0,
                                Milliseconds timeout = kDefaultTimeout) {
  return default_group().irecv(buffer, source, tag, timeout);
}
/// Returns root's object on every rank: ProcessGroup::broadcast_object().
inline std::string broadcast_object(const Bytes& object = {}, int root = 0, Milliseconds timeout = kDefaultTimeout) {
  return default_group().broadcast_object(object, root, timeout);
}
/// Returns every rank's object: ProcessGroup::all_gather_object().
inline std::vector<std::string> all_gather_object(const Bytes& object, Milliseconds timeout = kDefaultTimeout) {
  return default_group().all_gather_object(object, timeout);
}
/// Returns every rank's object on root: ProcessGroup::gather_object().
inline std::vector<std::string> gather_object(const Bytes& object, int root = 0,
                                              Milliseconds timeout = kDefaultTimeout) {
  return default_group().gather_object(object, root, timeout);
}
/// Returns root's object r on rank r: ProcessGroup::scatter_object().
template <typename Object = std::string>
std::string scatter_object(const std::vector<Object>& given, int root = 0, Milliseconds timeout = kDefaultTimeout) {
  return default_group().scatter_object(given, root, timeout);
}

}  // namespace ddp
