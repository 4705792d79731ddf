// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Operations of the default group as functions, as in torch.distributed.
///
///     ddp::Session session = ddp::init_process_group("gloo");
///     double loss = ...;
///     ddp::all_reduce(loss, ddp::ReduceOp::Avg);        // of all ranks of the job
///
/// Each does what the method of its name does in ProcessGroup, whose descriptions hold here too. All throw Error with
/// Status::InvalidArgument if there is no default group. The others, such as all_reduce_async(), are methods of
/// ddp::default_group().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/bytes.hpp"
#include "ddp/process_group.hpp"
#include "ddp/reduction.hpp"
#include "ddp/session.hpp"
#include "ddp/work.hpp"

namespace ddp {

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
