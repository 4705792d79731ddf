// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/describe_operation.hpp"

#include "rendezvous/base/text.hpp"

namespace ddp::runtime {

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::AllReduce:
      return "all_reduce";
    case OperationKind::Reduce:
      return "reduce";
    case OperationKind::Broadcast:
      return "broadcast";
    case OperationKind::AllGather:
      return "all_gather";
    case OperationKind::Gather:
      return "gather";
    case OperationKind::Scatter:
      return "scatter";
    case OperationKind::ReduceScatter:
      return "reduce_scatter";
    case OperationKind::AllToAll:
      return "all_to_all";
    case OperationKind::Barrier:
      return "barrier";
    case OperationKind::MonitoredBarrier:
      return "monitored_barrier";
    case OperationKind::Send:
      return "send";
    case OperationKind::Receive:
      return "recv";
    case OperationKind::BroadcastObject:
      return "broadcast_object";
    case OperationKind::AllGatherObject:
      return "all_gather_object";
    case OperationKind::GatherObject:
      return "gather_object";
    case OperationKind::ScatterObject:
      return "scatter_object";
    case OperationKind::Allocate:
      return "allocate";
  }
  return "unknown operation";
}

std::string rank_list(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> numbers;
  for (const std::size_t rank : ranks) numbers.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + rendezvous::list_of(numbers, 8);
}

std::string numbered_name(const Operation& operation, std::uint64_t sequence) {
  return std::string(operation_name(operation.kind)) + " #" + std::to_string(sequence);
}

std::string describe(const Operation& operation, std::uint64_t sequence) {
  if (operation.is_message()) return describe_message(operation);
  std::string text = numbered_name(operation, sequence);
  // The size of an object that this rank receives is not known in advance.
  const bool has_size = !is_barrier(operation.kind) && (!is_on_objects(operation.kind) || operation.count > 0);
  if (has_size) text += " (" + rendezvous::describe_bytes(operation.bytes()) + ")";
  return text;
}

std::string describe_message(const Operation& operation) {
  const std::string peer = operation.root == kAnyRank ? "any rank" : "rank " + std::to_string(operation.root);
  return std::string(operation_name(operation.kind)) + (operation.kind == OperationKind::Send ? " to " : " from ") +
         peer + " (" + rendezvous::describe_bytes(operation.bytes()) + ", tag " + std::to_string(operation.tag) + ")";
}

}  // namespace ddp::runtime
