// SPDX-License-Identifier: BSD-3-Clause
// One operation as the caller asked for it, and the words for it in errors: a collective, or a message between two
// ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::runtime {

enum class OperationKind : std::int32_t {
  AllReduce,
  Reduce,
  Broadcast,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier,
  MonitoredBarrier,
  Send,
  Receive,
  BroadcastObject,
  AllGatherObject,
  GatherObject,
  ScatterObject,
};

constexpr std::int32_t kAnyRank = DDP_ANY_RANK;
constexpr std::int32_t kNoDevice = -1;  // memory of the CPU

class ObjectExchange;

struct Operation {
  OperationKind kind = OperationKind::Barrier;
  void* data = nullptr;         // in place; where there is an input: the output, null where this rank has none
  const void* input = nullptr;  // null where this rank has none
  // Elements that each rank contributes (or, of scatter and reduce_scatter, gets); of all_to_all: gives to each rank
  // and gets from it, 0 if counts say so instead.
  std::size_t count = 0;
  std::size_t parts = 1;  // of all_to_all: ranks; else one rank contributes `count` in all
  std::int32_t dtype = DDP_UINT8;
  std::int32_t device = kNoDevice;  // the CUDA device whose memory it is
  std::int32_t reduce_op = DDP_SUM;
  double factor = 1;      // DDP_PREMUL_SUM: this rank's
  std::int32_t root = 0;  // of a message: the rank it goes to or comes from
  std::uint32_t tag = 0;  // of a message
  // all_to_all, if parts differ: elements for each rank, and from each. Of all_gather the latter, if they differ.
  // The caller's until the operation is issued.
  std::span<const std::size_t> input_counts{};
  std::span<const std::size_t> output_counts{};
  ObjectExchange* objects = nullptr;  // of the collectives on objects; `count` is this rank's bytes
  bool all_missing = false;           // of monitored_barrier: name every rank that is missing, not the first only

  std::size_t bytes() const;  // of one rank's contribution
  bool reduces() const;
  bool is_message() const;
};

// These check what the caller passed and throw rendezvous::Error{InvalidArgument}.
struct GroupPlace {
  int rank = 0;
  int size = 1;
};
void check_root(const char* what, std::int32_t root, GroupPlace place);
Operation make_all_reduce(const ddp_buffer& buffer, ddp_reduction reduction);
Operation make_reduce(const ddp_buffer& buffer, ddp_reduction reduction, std::int32_t root, GroupPlace place);
Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, GroupPlace place);
Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, GroupPlace place);
Operation make_gather(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place);
Operation make_scatter(const ddp_buffer& input, const ddp_buffer& output, std::int32_t root, GroupPlace place);
Operation make_reduce_scatter(const ddp_buffer& input, const ddp_buffer& output, ddp_reduction reduction,
                              GroupPlace place);
// Both counts null: evenly.
Operation make_all_to_all(const ddp_buffer& input, const std::size_t* input_counts, const ddp_buffer& output,
                          const std::size_t* output_counts, GroupPlace place);
Operation make_send(const ddp_buffer& buffer, std::int32_t destination, std::uint32_t tag, GroupPlace place);
// source: a rank or kAnyRank.
Operation make_receive(const ddp_buffer& buffer, std::int32_t source, std::uint32_t tag, GroupPlace place);
// Is there memory, of a known type? check_buffer: of the CPU; the operations above take a CUDA device's too.
void check_elements(const char* what, const void* data, std::size_t count, std::int32_t dtype);
void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device);

std::size_t dtype_size(std::int32_t dtype);  // 0: unknown
const char* dtype_name(std::int32_t dtype);
const char* operation_name(OperationKind kind);
const char* reduce_op_name(std::int32_t reduce_op);
bool has_root(OperationKind kind);
bool is_on_objects(OperationKind kind);

std::string rank_list(const std::vector<std::size_t>& ranks);                   // "ranks 0, 2": eight at most by number
std::string human_seconds(std::chrono::milliseconds duration);                  // "30 s", "300 ms"
std::string human_bytes(std::size_t bytes);                                     // "33.0 MB"
std::string numbered_name(const Operation& operation, std::uint64_t sequence);  // "all_reduce #412"
std::string describe(const Operation& operation, std::uint64_t sequence);       // "all_reduce #412 (33.0 MB)"
std::string describe_message(const Operation& operation);                       // "send to rank 2 (4.0 kB, tag 7)"

// What must be equal on all ranks, in a form they can exchange.
using Fingerprint = std::array<std::int64_t, 2>;
Fingerprint fingerprint(const Operation& operation);
std::string describe(const Fingerprint& fingerprint);  // "all_reduce of 1000 float32 (sum)"
// One fingerprint a rank: "rank 0 called all_reduce of 1000 float32 (sum); ranks 1, 2 called barrier".
std::string who_called_what(const std::vector<Fingerprint>& fingerprints);

// Multiplies float32 or float64 elements, in their own type.
void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, double factor);
// DDP_AVG is a sum of what was multiplied by this, as the type rounds it. Multiplying, not dividing, gives PyTorch's
// bits.
double share_of(int size, std::int32_t dtype);

}  // namespace ddp::runtime
