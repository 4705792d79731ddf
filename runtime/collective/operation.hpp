// SPDX-License-Identifier: BSD-3-Clause
// One operation of a group as the caller asked for it: a collective, or a message between two ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/reduce_op.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

// Those of ddp_operation_kind, and one more.
enum class OperationKind : std::int32_t {
  AllReduce = DDP_ALL_REDUCE,
  Reduce = DDP_REDUCE,
  Broadcast = DDP_BROADCAST,
  AllGather = DDP_ALL_GATHER,
  Gather = DDP_GATHER,
  Scatter = DDP_SCATTER,
  ReduceScatter = DDP_REDUCE_SCATTER,
  AllToAll = DDP_ALL_TO_ALL,
  Barrier = DDP_BARRIER,
  MonitoredBarrier = DDP_MONITORED_BARRIER,
  Send = DDP_SEND,
  Receive = DDP_RECV,
  BroadcastObject = DDP_BROADCAST_OBJECT,
  AllGatherObject = DDP_ALL_GATHER_OBJECT,
  GatherObject = DDP_GATHER_OBJECT,
  ScatterObject = DDP_SCATTER_OBJECT,
  Allocate,
};

constexpr bool is_barrier(OperationKind kind) {
  return kind == OperationKind::Barrier || kind == OperationKind::MonitoredBarrier;
}
constexpr bool is_on_objects(OperationKind kind) {
  return kind >= OperationKind::BroadcastObject && kind <= OperationKind::ScatterObject;
}
constexpr bool has_root(OperationKind kind) {
  return kind == OperationKind::Reduce || kind == OperationKind::Broadcast || kind == OperationKind::Gather ||
         kind == OperationKind::Scatter || (is_on_objects(kind) && kind != OperationKind::AllGatherObject);
}

constexpr std::int32_t kAnyRank = DDP_ANY_RANK;
constexpr std::int32_t kNoDevice = -1;  // CPU memory

// This process's place in a group.
struct GroupPlace {
  int rank = 0;
  int size = 1;
};

class ObjectExchange;

struct Operation {
  OperationKind kind = OperationKind::Barrier;
  void* data = nullptr;  // in-place operations: input and output; others: the output, null if this rank has none;
                         // allocate: a void* that is set
  const void* input = nullptr;  // null for in-place operations, and if this rank has none
  // Elements that each rank contributes; scatter and reduce_scatter: that each rank receives; all_to_all: that each
  // pair of ranks exchanges, or 0 if the counts below are set.
  std::size_t count = 0;
  std::size_t parts = 1;  // how many times `count` this rank contributes: the group's size for all_to_all, else 1
  std::int32_t dtype = DDP_UINT8;
  std::int32_t device = kNoDevice;  // index of the CUDA device that holds the memory
  collectives::ReduceOp reduce_op = collectives::ReduceOp::Sum;
  double factor = 1;      // this rank's factor for a weighted sum
  std::int32_t root = 0;  // for a message: the peer
  std::uint32_t tag = 0;  // for a message
  // Element counts per rank for an uneven all_to_all; an uneven all_gather sets only output_counts. The memory is the
  // caller's until the operation is issued.
  std::span<const std::size_t> input_counts{};
  std::span<const std::size_t> output_counts{};
  ObjectExchange* objects = nullptr;  // set by collectives on objects; then `count` is this rank's bytes
  bool all_missing = false;           // monitored_barrier: name every missing rank, not only the first

  // Returns the size of this rank's contribution.
  std::size_t bytes() const;
  bool reduces() const {
    return kind == OperationKind::AllReduce || kind == OperationKind::Reduce || kind == OperationKind::ReduceScatter;
  }
  bool is_message() const { return kind == OperationKind::Send || kind == OperationKind::Receive; }
};

}  // namespace ddp::runtime
