// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Groups of ranks, and all that their ranks do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/bytes.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/reduction.hpp"
#include "ddp/work.hpp"

namespace ddp {

/// Source for ProcessGroup::recv() and irecv() that takes the message of whichever rank sends first.
inline constexpr int kAnyRank = DDP_ANY_RANK;
/// Color for ProcessGroup::split() that puts this rank into none of the groups.
inline constexpr int kNoColor = DDP_NO_COLOR;

/// What a group is to be like.
struct GroupOptions {
  std::string name = {};                   ///< for one group of the job, without a slash; empty: made from the members
  std::string backend = {};                ///< empty: as its session or parent
  Milliseconds timeout = kDefaultTimeout;  ///< for each collective; by default as its session or parent

  /// For ddp.h; points into this.
  ddp_group_options c() const { return {sizeof(ddp_group_options), name.c_str(), backend.c_str(), timeout.count()}; }
};

/// The ranks that talk to each other. A view: the session owns the group. Single-use after an error.
/// Empty where this process is no member: then it is false, and has neither rank nor size (both -1).
///
/// Every rank calls the same operations in the same order, with the same counts, types, reductions and roots. timeout
/// is from the call to the operation's end; kDefaultTimeout is the group's. Throws Error: Status::InvalidArgument
/// before anything is sent, which leaves the group as it was; any other status ends the group, and what is in the
/// buffers then is unspecified. One thread at a time. Named after torch.distributed's functions; each says what it is
/// called there if that is another name.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  /// From ddp.h.
  explicit ProcessGroup(ddp_group* group) : group_(group) {}
  /// Is this process a member?
  explicit operator bool() const { return group_ != nullptr; }
  /// This process's rank within the group, from 0 to size() - 1. Any thread may ask.
  int rank() const { return ddp_group_rank(group_); }
  /// How many ranks the group has, at least 1. Any thread may ask.
  int size() const { return ddp_group_size(group_); }
  /// What messages call it, such as "world".
  std::string name() const { return ddp_group_name(group_); }
  /// What carries it, such as "gloo". PyTorch's get_backend.
  std::string backend() const { return ddp_group_backend(group_); }
  /// The rank in the job of this group's rank `rank`. Throws Error with Status::InvalidArgument if there is none.
  /// PyTorch's get_global_rank.
  int global_rank(int rank) const {
    const int found = ddp_group_global_rank(group_, rank);
    if (found < 0) throw Error(Status::InvalidArgument, name() + ": has no rank " + std::to_string(rank));
    return found;
  }
  /// The rank in this group of the job's rank `global_rank`; -1 if it is not a member. PyTorch's get_group_rank.
  int group_rank(int global_rank) const { return ddp_group_group_rank(group_, global_rank); }

  /// Collective: the ranks that give the same color make a group, in the order of their keys, then of their ranks here.
  /// With kNoColor: an empty group. MPI's MPI_Comm_split.
  ProcessGroup split(int color, int key = 0, const GroupOptions& options = {}) const {
    const ddp_group_options c = options.c();
    ddp_group* group = nullptr;
    detail::check(ddp_group_split(group_, color, key, &c, &group));
    return ProcessGroup(group);
  }
  /// Leaves the group: waits for operations in flight, closes its connections; no copy of this view may be used then.
  /// Not for the world, which ends with its session, as do the groups that are left then. PyTorch's
  /// destroy_process_group.
  void destroy() {
    detail::check(ddp_group_destroy(group_));
    group_ = nullptr;
  }

  /// Returns a view of the same group whose operations have this timeout unless they are given one:
  /// `world.with_timeout(5s).all_reduce(gradients)`. It is for operations only: what is made from the view, such as a
  /// DistributedDataParallel or a split(), has the group's own timeout.
  ProcessGroup with_timeout(Milliseconds timeout) const {
    ProcessGroup view = *this;
    view.timeout_ = timeout;
    return view;
  }

  /// In place: every rank's buffer becomes the reduction over all ranks, bitwise equal on all of them.
  void all_reduce(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_reduce(group_, buffer.c(), reduction.c(), ms(timeout)));
  }
  /// In place on root; what is in the others' buffers afterwards is unspecified.
  void reduce(Buffer buffer, const Reduction& reduction = {}, int root = 0,
              Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce(group_, buffer.c(), reduction.c(), root, ms(timeout)));
  }
  /// Every rank's buffer becomes root's.
  void broadcast(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_broadcast(group_, buffer.c(), root, ms(timeout)));
  }
  /// output: size() * input.count elements, rank r's input at r * input.count. PyTorch's all_gather_into_tensor.
  void all_gather(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_gather(group_, input.c(), output.c(), ms(timeout)));
  }
  /// The same on root; output is not looked at on the others.
  void gather(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_gather(group_, input.c(), output.c(), root, ms(timeout)));
  }
  /// Rank r's output becomes output.count elements of root's input, from r * output.count on. input is not looked at on
  /// the others.
  void scatter(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_scatter(group_, input.c(), output.c(), root, ms(timeout)));
  }
  /// input: size() * output.count elements; rank r's output becomes the reduction of those from r * output.count on.
  /// The input is left as it is. PyTorch's reduce_scatter_tensor.
  void reduce_scatter(Buffer input, Buffer output, const Reduction& reduction = {},
                      Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce_scatter(group_, input.c(), output.c(), reduction.c(), ms(timeout)));
  }
  /// Each rank sends an equal part of its input to every rank, and gets one from each, in the order of ranks. Buffers
  /// must not overlap. PyTorch's all_to_all_single.
  void all_to_all(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_to_all(group_, input.c(), nullptr, output.c(), nullptr, ms(timeout)));
  }
  /// The same with parts of any size: input_counts[r] elements go to rank r, output_counts[r] come from it. A count for
  /// each rank; they add up to the buffers'.
  void all_to_all(Buffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                  const std::vector<std::size_t>& output_counts, Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    detail::check(
        ddp_all_to_all(group_, input.c(), input_counts.data(), output.c(), output_counts.data(), ms(timeout)));
  }
  /// Returns once every rank has called it.
  void barrier(Milliseconds timeout = kDefaultTimeout) const { detail::check(ddp_barrier(group_, ms(timeout))); }
  /// A barrier that knows who is missing: if some rank has not come in time, every rank gets Status::Timeout and its
  /// number; those of all that are missing with wait_all_ranks. See ddp_monitored_barrier(). Source:
  /// torch.distributed.monitored_barrier.
  void monitored_barrier(Milliseconds timeout = kDefaultTimeout, bool wait_all_ranks = false) const {
    detail::check(ddp_monitored_barrier(group_, wait_all_ranks ? 1 : 0, ms(timeout)));
  }

  /// @name Asynchronous collectives
  /// The same, in order, on a thread of the group's; the buffers must stay until the operation ended. PyTorch's
  /// async_op=True. They throw what is wrong with the arguments; the Work, what goes wrong later.
  /// @{

  /// all_reduce(), asynchronously.
  Work all_reduce_async(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_reduce_async(group_, buffer.c(), reduction.c(), ms(timeout), &work));
    return Work(work);
  }
  /// reduce(), asynchronously.
  Work reduce_async(Buffer buffer, const Reduction& reduction = {}, int root = 0,
                    Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_reduce_async(group_, buffer.c(), reduction.c(), root, ms(timeout), &work));
    return Work(work);
  }
  /// broadcast(), asynchronously.
  Work broadcast_async(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_broadcast_async(group_, buffer.c(), root, ms(timeout), &work));
    return Work(work);
  }
  /// all_gather(), asynchronously.
  Work all_gather_async(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_gather_async(group_, input.c(), output.c(), ms(timeout), &work));
    return Work(work);
  }
  /// gather(), asynchronously.
  Work gather_async(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_gather_async(group_, input.c(), output.c(), root, ms(timeout), &work));
    return Work(work);
  }
  /// scatter(), asynchronously.
  Work scatter_async(Buffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_scatter_async(group_, input.c(), output.c(), root, ms(timeout), &work));
    return Work(work);
  }
  /// reduce_scatter(), asynchronously.
  Work reduce_scatter_async(Buffer input, Buffer output, const Reduction& reduction = {},
                            Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_reduce_scatter_async(group_, input.c(), output.c(), reduction.c(), ms(timeout), &work));
    return Work(work);
  }
  /// all_to_all() of equal parts, asynchronously.
  Work all_to_all_async(Buffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_all_to_all_async(group_, input.c(), nullptr, output.c(), nullptr, ms(timeout), &work));
    return Work(work);
  }
  /// all_to_all() of parts of any size, asynchronously.
  Work all_to_all_async(Buffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                        const std::vector<std::size_t>& output_counts, Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    ddp_work work;
    detail::check(ddp_all_to_all_async(group_, input.c(), input_counts.data(), output.c(), output_counts.data(),
                                       ms(timeout), &work));
    return Work(work);
  }
  /// barrier(), asynchronously.
  Work barrier_async(Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_barrier_async(group_, ms(timeout), &work));
    return Work(work);
  }

  /// @}

  /// @name Messages between two ranks
  /// They wait for nothing else in their group, only for each other. Messages between two ranks with the same tag
  /// arrive in the order in which they were sent; count and type of both sides must agree. Source: torch.distributed's
  /// send, recv, isend and irecv.
  /// @{

  /// Returns once the buffer may be used again, which says nothing about the receiver.
  void send(Buffer buffer, int destination, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_send(group_, buffer.c(), destination, tag, ms(timeout)));
  }
  /// Waits until the buffer holds what source, a rank or kAnyRank, has sent; returns the rank it came from.
  int recv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) const {
    std::int32_t sender = -1;
    detail::check(ddp_recv(group_, buffer.c(), source, tag, ms(timeout), &sender));
    return sender;
  }
  /// send() that does not wait. Wait for each: until then the library remembers it.
  Work isend(Buffer buffer, int destination, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_isend(group_, buffer.c(), destination, tag, ms(timeout), &work));
    return Work(work);
  }
  /// recv() that does not wait. Likewise; Work::wait_source() tells the sender.
  Work irecv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0,
             Milliseconds timeout = kDefaultTimeout) const {
    ddp_work work;
    detail::check(ddp_irecv(group_, buffer.c(), source, tag, ms(timeout), &work));
    return Work(work);
  }

  /// @}

  /// @name Collectives on objects
  /// Bytes, as many as each rank likes: std::string, std::vector<std::byte> and the like go in, std::string comes out.
  /// ddp/json.hpp does the same for JSON. See ddp_broadcast_object().
  /// @{

  /// Root's object, on every rank; the others need not give one.
  std::string broadcast_object(const Bytes& object = {}, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_broadcast_object(group_, object.c(), root, ms(timeout), objects.sink()));
    return objects.one();
  }
  /// Every rank's object, in the order of ranks.
  std::vector<std::string> all_gather_object(const Bytes& object, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_all_gather_object(group_, object.c(), ms(timeout), objects.sink()));
    return objects.all();
  }
  /// The same on root; empty on the others.
  std::vector<std::string> gather_object(const Bytes& object, int root = 0,
                                         Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_gather_object(group_, object.c(), root, ms(timeout), objects.sink()));
    return objects.all();
  }
  /// Object r of root's, on rank r; the others need not give any.
  template <typename Object = std::string>
  std::string scatter_object(const std::vector<Object>& given, int root = 0,
                             Milliseconds timeout = kDefaultTimeout) const {
    std::vector<ddp_bytes> c_objects;
    c_objects.reserve(given.size());
    for (const Object& object : given) c_objects.push_back(Bytes(object).c());
    detail::Texts objects;
    detail::check(ddp_scatter_object(group_, c_objects.data(), c_objects.size(), root, ms(timeout), objects.sink()));
    return objects.one();
  }

  /// @}

  /// The group's ncclComm_t: see ddp_group_nccl_communicator() for who may use it when.
  void* nccl_communicator() const {
    void* communicator = nullptr;
    detail::check(ddp_group_nccl_communicator(group_, &communicator));
    return communicator;
  }

  /// For ddp.h.
  ddp_group* c() const { return group_; }

 private:
  void check_counts(const std::vector<std::size_t>& input, const std::vector<std::size_t>& output) const {
    const auto ranks = static_cast<std::size_t>(size());
    if (input.size() == ranks && output.size() == ranks) return;
    throw Error(Status::InvalidArgument, "all_to_all: give a count for each of the " + std::to_string(ranks) +
                                             " ranks, of the input and of the output");
  }

  // The timeout of one operation, for ddp.h.
  std::int64_t ms(Milliseconds given) const { return (given != kDefaultTimeout ? given : timeout_).count(); }

  ddp_group* group_ = nullptr;
  Milliseconds timeout_ = kDefaultTimeout;
};

}  // namespace ddp
