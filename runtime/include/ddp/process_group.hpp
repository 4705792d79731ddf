// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Groups of ranks, and all that their ranks do together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/work.hpp"

namespace ddp {

/// How contributions are combined.
enum class ReduceOp : std::int32_t {
  Sum = DDP_SUM,              ///< integers wrap
  Avg = DDP_AVG,              ///< each contribution times 1/N, then summed; floating point only
  Product = DDP_PRODUCT,      ///< integers wrap
  Min = DDP_MIN,              ///< the smallest; NaN if any rank has NaN; "nccl" ignores NaN
  Max = DDP_MAX,              ///< the largest; NaN if any rank has NaN; "nccl" ignores NaN
  BitAnd = DDP_BAND,          ///< bitwise and; integers only
  BitOr = DDP_BOR,            ///< bitwise or; integers only
  BitXor = DDP_BXOR,          ///< bitwise exclusive or; integers only
  PremulSum = DDP_PREMUL_SUM  ///< each contribution times its rank's factor, then summed; made by premul_sum()
};

/// A reduction: an operation, and for ReduceOp::PremulSum a factor.
struct Reduction {
  ReduceOp op = ReduceOp::Sum;  ///< equal on all ranks
  double factor = 1;            ///< this rank's factor for ReduceOp::PremulSum; unused otherwise

  /// Makes a sum.
  Reduction() = default;
  /// Makes a reduction of any operation; a ReduceOp may be given wherever a Reduction is expected.
  Reduction(ReduceOp op_) : op(op_) {}  // NOLINT: an operation is a reduction
  /// Makes a reduction with a factor, as premul_sum() does.
  Reduction(ReduceOp op_, double factor_) : op(op_), factor(factor_) {}
  /// Returns the struct of ddp.h.
  ddp_reduction c() const { return {static_cast<std::int32_t>(op), factor}; }
};

/// Returns the reduction that sums each rank's contribution times that rank's factor; floating point only.
inline Reduction premul_sum(double factor) { return {ReduceOp::PremulSum, factor}; }

/// Source for ProcessGroup::recv() and irecv() that takes the message of whichever rank sends first.
inline constexpr int kAnyRank = DDP_ANY_RANK;
/// Color for ProcessGroup::split() that puts this rank into none of the groups.
inline constexpr int kNoColor = DDP_NO_COLOR;

/// Properties of a new group.
struct GroupOptions {
  std::string name = {};                   ///< unique in the job, without a slash; empty: made from the members
  std::string backend = {};                ///< empty: as its session or parent
  Milliseconds timeout = kDefaultTimeout;  ///< for each collective; by default as its session or parent

  /// Returns the struct of ddp.h, which points into this one.
  ddp_group_options c() const { return {sizeof(ddp_group_options), name.c_str(), backend.c_str(), timeout.count()}; }
};

/// Frees memory of ProcessGroup::allocate().
struct FreeGroupMemory {
  ddp_group* group = nullptr;  ///< the group that gave the memory
  /// Frees the memory.
  void operator()(void* memory) const { ddp_free(group, memory); }
};
/// Memory of ProcessGroup::allocate(), which it owns.
template <typename T>
using GroupMemory = std::unique_ptr<T[], FreeGroupMemory>;

/// Ranks that talk to each other. It is a view: the session owns the group. Single-use after an error. Where this
/// process is not a member the group is empty: it converts to false, and rank() and size() are -1.
///
/// Every rank calls the same operations in the same order, with the same counts, types, reductions
/// and roots. timeout is from the call to the operation's end; kDefaultTimeout means the timeout of
/// with_timeout(), else the group's. Operations throw Error: Status::InvalidArgument before
/// anything is sent, which leaves the group as it was; any other status ends the group, and the
/// content of the buffers is unspecified then. One thread at a time. Operations have the names of
/// torch.distributed; where the names differ, the description has PyTorch's.
class ProcessGroup {
 public:
  /// Makes an empty group.
  ProcessGroup() = default;
  /// Makes a view of a group of ddp.h.
  explicit ProcessGroup(ddp_group* group) : group_(group) {}
  /// Returns whether this process is a member.
  explicit operator bool() const { return group_ != nullptr; }
  /// Returns this process's rank in the group, from 0 to size() - 1. Any thread may call.
  int rank() const { return ddp_group_rank(group_); }
  /// Returns the number of ranks in the group, at least 1. Any thread may call.
  int size() const { return ddp_group_size(group_); }
  /// Returns the group's name in messages, such as "world".
  std::string name() const { return ddp_group_name(group_); }
  /// Returns the name of the group's backend, such as "ddp". PyTorch: get_backend.
  std::string backend() const { return ddp_group_backend(group_); }
  /// Returns the rank in the job of this group's rank `rank`. Throws Error with Status::InvalidArgument if there is
  /// none. PyTorch: get_global_rank.
  int global_rank(int rank) const {
    const int found = ddp_group_global_rank(group_, rank);
    if (found < 0) throw Error(Status::InvalidArgument, name() + ": has no rank " + std::to_string(rank));
    return found;
  }
  /// Returns the rank in this group of the job's rank `global_rank`; -1 if it is not a member. PyTorch: get_group_rank.
  int group_rank(int global_rank) const { return ddp_group_group_rank(group_, global_rank); }

  /// Splits the group: ranks that give the same color become a new group, in the order of their keys, then of their
  /// ranks here. kNoColor gives an empty group. Collective. Source: MPI_Comm_split.
  ProcessGroup split(int color, int key = 0, const GroupOptions& options = {}) const {
    const ddp_group_options c = options.c();
    ddp_group* group = nullptr;
    detail::check(ddp_group_split(group_, color, key, &c, &group));
    return ProcessGroup(group);
  }
  /// Leaves the group: waits for operations in flight and closes its connections. No copy of this view may be used
  /// afterwards. The world is refused: it ends with its session, as do all groups that are left then. PyTorch:
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

  /// Reduces in place: every rank's buffer becomes the reduction over all ranks, bitwise equal on all of them.
  void all_reduce(Buffer buffer, const Reduction& reduction = {}, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_reduce(group_, buffer.c(), reduction.c(), ms(timeout), nullptr));
  }
  /// Reduces in place on root; the content of the other ranks' buffers is unspecified afterwards.
  void reduce(Buffer buffer, const Reduction& reduction = {}, int root = 0,
              Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce(group_, buffer.c(), reduction.c(), root, ms(timeout), nullptr));
  }
  /// Copies root's buffer into every rank's buffer.
  void broadcast(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_broadcast(group_, buffer.c(), root, ms(timeout), nullptr));
  }
  /// Gathers every rank's input on every rank. output has size() * input.count elements: rank r's input is at
  /// r * input.count. PyTorch: all_gather_into_tensor.
  void all_gather(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_gather(group_, input.c(), output.c(), ms(timeout), nullptr));
  }
  /// Gathers every rank's input on root, laid out as by all_gather(); output is ignored on the other ranks.
  void gather(ConstBuffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_gather(group_, input.c(), output.c(), root, ms(timeout), nullptr));
  }
  /// Distributes root's input: rank r's output becomes output.count elements of it, starting at r * output.count. input
  /// is ignored on the other ranks.
  void scatter(ConstBuffer input, Buffer output, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_scatter(group_, input.c(), output.c(), root, ms(timeout), nullptr));
  }
  /// Reduces the inputs and gives each rank one part. input has size() * output.count elements; rank r's output becomes
  /// the reduction of those starting at r * output.count. The input is not changed. PyTorch: reduce_scatter_tensor.
  void reduce_scatter(ConstBuffer input, Buffer output, const Reduction& reduction = {},
                      Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_reduce_scatter(group_, input.c(), output.c(), reduction.c(), ms(timeout), nullptr));
  }
  /// Sends an equal part of each rank's input to every rank; parts are received in the order of ranks. Buffers must not
  /// overlap. PyTorch: all_to_all_single.
  void all_to_all(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_all_to_all(group_, input.c(), nullptr, output.c(), nullptr, ms(timeout), nullptr));
  }
  /// Sends parts of any size: input_counts[r] elements go to rank r, output_counts[r] come from it. There is a count
  /// for each rank, and they add up to the buffers' counts.
  void all_to_all(ConstBuffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                  const std::vector<std::size_t>& output_counts, Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    detail::check(
        ddp_all_to_all(group_, input.c(), input_counts.data(), output.c(), output_counts.data(), ms(timeout), nullptr));
  }
  /// Gives this rank zeroed memory for `count` elements, all of which the group's all_reduce() handles faster with the
  /// backend "ddp". Every rank calls it, with the same count. It must end before the session. More at ddp_allocate().
  template <typename T>
  GroupMemory<T> allocate(std::size_t count, Milliseconds timeout = kDefaultTimeout) const {
    static_assert(std::is_trivial_v<T>, "the elements of a buffer are numbers");
    void* memory = nullptr;
    const std::size_t bytes = count < SIZE_MAX / sizeof(T) ? count * sizeof(T) : SIZE_MAX;  // which is refused
    detail::check(ddp_allocate(group_, bytes, ms(timeout), &memory));
    return GroupMemory<T>(static_cast<T*>(memory), {group_});
  }
  /// Waits until every rank has called it.
  void barrier(Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_barrier(group_, ms(timeout), nullptr));
  }
  /// Waits until every rank has called it, and names a missing rank, or with wait_all_ranks all of them, in the
  /// Status::Timeout that every rank gets if one does not come in time. More at ddp_monitored_barrier().
  void monitored_barrier(Milliseconds timeout = kDefaultTimeout, bool wait_all_ranks = false) const {
    detail::check(ddp_monitored_barrier(group_, wait_all_ranks ? 1 : 0, ms(timeout)));
  }

  /// @name Asynchronous collectives
  /// These are the collectives above, run in order on a thread of the group; the buffers must stay until the operation
  /// has ended. They throw if an argument is wrong; the Work throws later failures. PyTorch: async_op=True.
  /// @{

  /// Issues all_reduce() without waiting.
  [[nodiscard]] Work all_reduce_async(Buffer buffer, const Reduction& reduction = {},
                                      Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_all_reduce(group_, buffer.c(), reduction.c(), ms(timeout), work); });
  }
  /// Issues reduce() without waiting.
  [[nodiscard]] Work reduce_async(Buffer buffer, const Reduction& reduction = {}, int root = 0,
                                  Milliseconds timeout = kDefaultTimeout) const {
    return issued(
        [&](ddp_work* work) { return ddp_reduce(group_, buffer.c(), reduction.c(), root, ms(timeout), work); });
  }
  /// Issues broadcast() without waiting.
  [[nodiscard]] Work broadcast_async(Buffer buffer, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_broadcast(group_, buffer.c(), root, ms(timeout), work); });
  }
  /// Issues all_gather() without waiting.
  [[nodiscard]] Work all_gather_async(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_all_gather(group_, input.c(), output.c(), ms(timeout), work); });
  }
  /// Issues gather() without waiting.
  [[nodiscard]] Work gather_async(ConstBuffer input, Buffer output, int root = 0,
                                  Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_gather(group_, input.c(), output.c(), root, ms(timeout), work); });
  }
  /// Issues scatter() without waiting.
  [[nodiscard]] Work scatter_async(ConstBuffer input, Buffer output, int root = 0,
                                   Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_scatter(group_, input.c(), output.c(), root, ms(timeout), work); });
  }
  /// Issues reduce_scatter() without waiting.
  [[nodiscard]] Work reduce_scatter_async(ConstBuffer input, Buffer output, const Reduction& reduction = {},
                                          Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) {
      return ddp_reduce_scatter(group_, input.c(), output.c(), reduction.c(), ms(timeout), work);
    });
  }
  /// Issues all_to_all() of equal parts without waiting.
  [[nodiscard]] Work all_to_all_async(ConstBuffer input, Buffer output, Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) {
      return ddp_all_to_all(group_, input.c(), nullptr, output.c(), nullptr, ms(timeout), work);
    });
  }
  /// Issues all_to_all() of parts of any size without waiting.
  [[nodiscard]] Work all_to_all_async(ConstBuffer input, const std::vector<std::size_t>& input_counts, Buffer output,
                                      const std::vector<std::size_t>& output_counts,
                                      Milliseconds timeout = kDefaultTimeout) const {
    check_counts(input_counts, output_counts);
    return issued([&](ddp_work* work) {
      return ddp_all_to_all(group_, input.c(), input_counts.data(), output.c(), output_counts.data(), ms(timeout),
                            work);
    });
  }
  /// Issues barrier() without waiting.
  [[nodiscard]] Work barrier_async(Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_barrier(group_, ms(timeout), work); });
  }

  /// @}

  /// @name Messages between two ranks
  /// Messages wait only for each other, not for other operations of their group. Messages between two ranks with the
  /// same tag arrive in the order in which they were sent; count and type of both sides must agree.
  /// @{

  /// Sends the buffer to another rank. Returns once the buffer may be used again; the receiver may not have it yet.
  void send(ConstBuffer buffer, int destination, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_send(group_, buffer.c(), destination, tag, ms(timeout), nullptr));
  }
  /// Waits until the buffer holds what source, a rank or kAnyRank, has sent. Returns the rank it came from.
  int recv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0, Milliseconds timeout = kDefaultTimeout) const {
    std::int32_t sender = -1;
    detail::check(ddp_recv(group_, buffer.c(), source, tag, ms(timeout), &sender, nullptr));
    return sender;
  }
  /// Issues send() without waiting. Wait for each message: until then the library remembers it.
  [[nodiscard]] Work isend(ConstBuffer buffer, int destination, std::uint32_t tag = 0,
                           Milliseconds timeout = kDefaultTimeout) const {
    return issued([&](ddp_work* work) { return ddp_send(group_, buffer.c(), destination, tag, ms(timeout), work); });
  }
  /// Issues recv() without waiting. Wait for each message: until then the library remembers it. Work::wait_source()
  /// gives the sender.
  [[nodiscard]] Work irecv(Buffer buffer, int source = kAnyRank, std::uint32_t tag = 0,
                           Milliseconds timeout = kDefaultTimeout) const {
    return issued(
        [&](ddp_work* work) { return ddp_recv(group_, buffer.c(), source, tag, ms(timeout), nullptr, work); });
  }

  /// @}

  /// @name Collectives on objects
  /// An object is bytes, as many as each rank likes: std::string, std::vector<std::byte> and similar types go in,
  /// std::string comes out. More at ddp_broadcast_object().
  /// @{

  /// Returns root's object on every rank; the other ranks need not give one.
  std::string broadcast_object(const Bytes& object = {}, int root = 0, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_broadcast_object(group_, object.c(), root, ms(timeout), objects.sink()));
    return objects.one();
  }
  /// Returns every rank's object, in the order of ranks.
  std::vector<std::string> all_gather_object(const Bytes& object, Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_all_gather_object(group_, object.c(), ms(timeout), objects.sink()));
    return objects.all();
  }
  /// Returns every rank's object on root, in the order of ranks; nothing on the other ranks.
  std::vector<std::string> gather_object(const Bytes& object, int root = 0,
                                         Milliseconds timeout = kDefaultTimeout) const {
    detail::Texts objects;
    detail::check(ddp_gather_object(group_, object.c(), root, ms(timeout), objects.sink()));
    return objects.all();
  }
  /// Returns root's object r on rank r; the other ranks need not give any.
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

  /// Returns the group's ncclComm_t. ddp_group_nccl_communicator() says when it may be used.
  void* nccl_communicator() const {
    void* communicator = nullptr;
    detail::check(ddp_group_nccl_communicator(group_, &communicator));
    return communicator;
  }

  /// Returns the group of ddp.h.
  ddp_group* c() const { return group_; }

 private:
  void check_counts(const std::vector<std::size_t>& input, const std::vector<std::size_t>& output) const {
    const auto ranks = static_cast<std::size_t>(size());
    if (input.size() == ranks && output.size() == ranks) return;
    throw Error(Status::InvalidArgument, "all_to_all: give a count for each of the " + std::to_string(ranks) +
                                             " ranks, of the input and of the output");
  }

  // Returns the work that `issue` fills in.
  template <typename Issue>
  static Work issued(const Issue& issue) {
    ddp_work work;
    detail::check(issue(&work));
    return Work(work);
  }

  // The timeout of one operation, for ddp.h.
  std::int64_t ms(Milliseconds given) const { return (given != kDefaultTimeout ? given : timeout_).count(); }

  ddp_group* group_ = nullptr;
  Milliseconds timeout_ = kDefaultTimeout;
};

}  // namespace ddp
