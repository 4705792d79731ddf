// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A group's collectives and messages on tensors of libtorch.
///
///     ddp::libtorch::all_reduce(loss, ddp::ReduceOp::Avg);                    // of all ranks
///     ddp::libtorch::Work work = ddp::libtorch::all_reduce_async(gradients);
///     ...                                                                  // meanwhile
///     work.wait();
///
/// They are the functions of ProcessGroup with the same names, on the default group unless one is
/// given. They throw as buffer() and those functions do. For a deadline of its own give
/// `group.with_timeout(...)`.
///
/// Tensors on a GPU follow libtorch's current stream: an operation begins when what is before it on
/// that stream is done, and what comes on the stream after it sees the result. The host does not
/// wait. A tensor may be dropped at any time: its memory stays until the operation has ended.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "ddp/libtorch/tensor.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"
#include "ddp/work.hpp"

namespace ddp::libtorch {

/// One asynchronous operation on tensors: a ddp::Work that keeps their memory, and that waits with libtorch's current
/// stream. It may be dropped as that one.
class Work : public ddp::Work {
 public:
  /// Makes an empty one, to be assigned to. wait() throws Error with Status::InvalidArgument.
  Work() = default;
  /// Takes an operation of libddp on the memory of these tensors.
  Work(ddp::Work work, std::vector<at::Tensor> tensors) : ddp::Work(std::move(work)), tensors_(std::move(tensors)) {}
  ~Work() { drop(); }
  /// Makes a copy, which does not wait when it is dropped.
  Work(const Work&) = default;
  /// Takes the operation and its tensors.
  Work(Work&&) = default;
  /// Drops its operation, and becomes a copy.
  Work& operator=(const Work&) = default;
  /// Drops its operation, and takes the other one's with its tensors.
  Work& operator=(Work&&) = default;
  /// Waits until the operation has ended; for tensors on a GPU, libtorch's current stream waits, not the host. Throws
  /// its failure, or Error with Status::Aborted if an earlier operation of the group failed.
  void wait() const { wait_source(); }
  /// Waits as wait() does, and returns the rank at the other end of a message; -1 for a collective, and if a message
  /// has been waited for before.
  int wait_source() const {
    if (tensors_.empty()) return ddp::Work::wait_source();
    const CurrentStream stream(tensors_.front());
    return ddp::Work::wait_source();
  }
  /// Returns the operation as libddp has it.
  ddp::Work work() const { return *this; }

 private:
  std::vector<at::Tensor> tensors_;
};

namespace detail {

// Returns the reduction of bytes that `given` is of a tensor's elements. Those of bool are 0 or 1: a sum is "or", as
// NCCL has it in PyTorch, and an average is refused as it is for all integers.
inline Reduction of_elements(const at::Tensor& tensor, const Reduction& given) {
  if (tensor.scalar_type() != at::kBool) return given;
  if (given.op == ReduceOp::Sum || given.op == ReduceOp::BitOr) return ReduceOp::Max;
  if (given.op == ReduceOp::Product || given.op == ReduceOp::BitAnd) return ReduceOp::Min;
  return given;
}

inline at::Tensor one_for_each_rank(const at::Tensor& input, const ProcessGroup& group) {
  std::vector<std::int64_t> sizes = {group.size()};
  sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  return at::empty(sizes, input.options().requires_grad(false));
}

// Converts the rows that go to or come from each rank to elements. No sizes are equal parts.
inline std::vector<std::size_t> counts(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks) {
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  if (sizes.empty() && rows % ranks != 0) {
    throw Error(Status::InvalidArgument, "all_to_all_single: " + std::to_string(rows) +
                                             " rows are no equal parts for " + std::to_string(ranks) +
                                             " ranks: give sizes");
  }
  const std::int64_t row = rows > 0 ? tensor.numel() / rows : 0;
  std::vector<std::size_t> counts(sizes.empty() ? static_cast<std::size_t>(ranks) : 0,
                                  static_cast<std::size_t>(rows / ranks * row));
  for (const std::int64_t size : sizes) counts.push_back(static_cast<std::size_t>(size * row));
  return counts;
}

}  // namespace detail

/// Reduces in place: every rank's tensor becomes the reduction over all ranks.
inline void all_reduce(const at::Tensor& tensor, const Reduction& reduction = {},
                       const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.all_reduce(buffer(tensor), detail::of_elements(tensor, reduction));
}
/// Issues all_reduce() without waiting.
[[nodiscard]] inline Work all_reduce_async(const at::Tensor& tensor, const Reduction& reduction = {},
                                           const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return {group.all_reduce_async(buffer(tensor), detail::of_elements(tensor, reduction)), {tensor}};
}
/// Reduces in place on root; the content of the other ranks' tensors is unspecified afterwards.
inline void reduce(const at::Tensor& tensor, const Reduction& reduction = {}, int root = 0,
                   const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.reduce(buffer(tensor), detail::of_elements(tensor, reduction), root);
}
/// Issues reduce() without waiting.
[[nodiscard]] inline Work reduce_async(const at::Tensor& tensor, const Reduction& reduction = {}, int root = 0,
                                       const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return {group.reduce_async(buffer(tensor), detail::of_elements(tensor, reduction), root), {tensor}};
}
/// Copies root's tensor into every rank's tensor.
inline void broadcast(const at::Tensor& tensor, int root = 0, const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.broadcast(buffer(tensor), root);
}
/// Issues broadcast() without waiting.
[[nodiscard]] inline Work broadcast_async(const at::Tensor& tensor, int root = 0,
                                          const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return {group.broadcast_async(buffer(tensor), root), {tensor}};
}
/// Returns a new tensor with every rank's input: its first dimension is size(), and rank r's input
/// is at index r.
inline at::Tensor all_gather(const at::Tensor& input, const ProcessGroup& group = default_group()) {
  at::Tensor output = detail::one_for_each_rank(input, group);
  const CurrentStream stream(input);
  group.all_gather(buffer(input), buffer(output));
  return output;
}
/// Gathers every rank's input in a tensor of size() times as many elements, in the order of ranks.
inline void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                   const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.all_gather(buffer(input), buffer(output));
}
/// Issues all_gather_into_tensor() without waiting.
[[nodiscard]] inline Work all_gather_into_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                                       const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  return {group.all_gather_async(buffer(input), buffer(output)), {output, input}};
}
/// Returns on root a new tensor with every rank's input, as all_gather() does, and an undefined one on the other ranks.
inline at::Tensor gather(const at::Tensor& input, int root = 0, const ProcessGroup& group = default_group()) {
  at::Tensor output;
  if (group.rank() == root) output = detail::one_for_each_rank(input, group);
  const CurrentStream stream(input);
  group.gather(buffer(input), output.defined() ? buffer(output) : Buffer(), root);
  return output;
}
/// Distributes root's input: rank r's output becomes its r-th part. input is ignored on the other ranks, and may be
/// undefined there.
inline void scatter(const at::Tensor& output, const at::Tensor& input = {}, int root = 0,
                    const ProcessGroup& group = default_group()) {
  const CurrentStream stream(output);
  group.scatter(group.rank() == root ? ConstBuffer(buffer(input)) : ConstBuffer(), buffer(output), root);
}
/// Reduces the inputs and gives each rank one part: rank r's output becomes the reduction of the
/// inputs' r-th parts. input has size() times as many elements.
inline void reduce_scatter(const at::Tensor& input, const at::Tensor& output, const Reduction& reduction = {},
                           const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.reduce_scatter(buffer(input), buffer(output), detail::of_elements(input, reduction));
}
/// Does what reduce_scatter() does, with PyTorch's order of arguments.
inline void reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const Reduction& reduction = {},
                                  const ProcessGroup& group = default_group()) {
  reduce_scatter(input, output, reduction, group);
}
/// Issues reduce_scatter_tensor() without waiting.
[[nodiscard]] inline Work reduce_scatter_tensor_async(const at::Tensor& output, const at::Tensor& input,
                                                      const Reduction& reduction = {},
                                                      const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  return {group.reduce_scatter_async(buffer(input), buffer(output), detail::of_elements(input, reduction)),
          {output, input}};
}
/// Sends an equal part of the input to every rank, and receives one from each.
inline void all_to_all(const at::Tensor& input, const at::Tensor& output, const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.all_to_all(buffer(input), buffer(output));
}
/// Sends input_split_sizes[r] rows of the input to rank r, and receives output_split_sizes[r] rows from it. Without
/// sizes all parts are equal.
inline void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<std::int64_t>& output_split_sizes = {},
                              const std::vector<std::int64_t>& input_split_sizes = {},
                              const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  group.all_to_all(buffer(input), detail::counts(input, input_split_sizes, group.size()), buffer(output),
                   detail::counts(output, output_split_sizes, group.size()));
}
/// Issues all_to_all_single() without waiting.
[[nodiscard]] inline Work all_to_all_single_async(const at::Tensor& output, const at::Tensor& input,
                                                  const std::vector<std::int64_t>& output_split_sizes = {},
                                                  const std::vector<std::int64_t>& input_split_sizes = {},
                                                  const ProcessGroup& group = default_group()) {
  const CurrentStream stream(input);
  return {group.all_to_all_async(buffer(input), detail::counts(input, input_split_sizes, group.size()), buffer(output),
                                 detail::counts(output, output_split_sizes, group.size())),
          {output, input}};
}
/// Sends the tensor to another rank. Returns once the tensor may be changed; the receiver may not have it yet.
inline void send(const at::Tensor& tensor, int destination, std::uint32_t tag = 0,
                 const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  group.send(buffer(tensor), destination, tag);
}
/// Waits until the tensor holds what source, a rank or kAnyRank, has sent. Returns the rank it came from.
inline int recv(const at::Tensor& tensor, int source = kAnyRank, std::uint32_t tag = 0,
                const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return group.recv(buffer(tensor), source, tag);
}
/// Issues send() without waiting.
[[nodiscard]] inline Work isend(const at::Tensor& tensor, int destination, std::uint32_t tag = 0,
                                const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return {group.isend(buffer(tensor), destination, tag), {tensor}};
}
/// Issues recv() without waiting.
[[nodiscard]] inline Work irecv(const at::Tensor& tensor, int source = kAnyRank, std::uint32_t tag = 0,
                                const ProcessGroup& group = default_group()) {
  const CurrentStream stream(tensor);
  return {group.irecv(buffer(tensor), source, tag), {tensor}};
}

}  // namespace ddp::libtorch
