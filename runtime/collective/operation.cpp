// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective/operation.hpp"

#include <numeric>

#include "runtime/base/buffer.hpp"

namespace ddp::runtime {

bool is_barrier(OperationKind kind) {
  return kind == OperationKind::Barrier || kind == OperationKind::MonitoredBarrier;
}

bool has_root(OperationKind kind) {
  switch (kind) {
    case OperationKind::Reduce:
    case OperationKind::Broadcast:
    case OperationKind::Gather:
    case OperationKind::Scatter:
    case OperationKind::BroadcastObject:
    case OperationKind::GatherObject:
    case OperationKind::ScatterObject:
      return true;
    default:
      return false;
  }
}

bool is_on_objects(OperationKind kind) {
  return kind == OperationKind::BroadcastObject || kind == OperationKind::AllGatherObject ||
         kind == OperationKind::GatherObject || kind == OperationKind::ScatterObject;
}

std::size_t Operation::bytes() const {
  const std::size_t given = std::accumulate(input_counts.begin(), input_counts.end(), count * parts);
  return given * dtype_size(dtype);
}

bool Operation::is_message() const { return kind == OperationKind::Send || kind == OperationKind::Receive; }

bool Operation::reduces() const {
  return kind == OperationKind::AllReduce || kind == OperationKind::Reduce || kind == OperationKind::ReduceScatter;
}

}  // namespace ddp::runtime
