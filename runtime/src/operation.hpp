// SPDX-License-Identifier: BSD-3-Clause
// One collective as the caller asked for it, and the words for it in errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::runtime {

enum class OperationKind : std::int32_t { AllReduce, Broadcast, AllGather, Barrier };

struct Operation {
  OperationKind kind = OperationKind::Barrier;
  void* data = nullptr;         // in place; all_gather: the output
  const void* input = nullptr;  // all_gather only
  std::size_t count = 0;        // elements that each rank contributes
  std::int32_t dtype = DDP_UINT8;
  std::int32_t reduce_op = DDP_SUM;
  std::int32_t root = 0;
  // Compare what all ranks are about to do before doing it: DDP's buckets skip this, being checked at construction.
  bool checked = true;

  std::size_t bytes() const;
};

// These check what the caller passed and throw rendezvous::Error{InvalidArgument}.
Operation make_all_reduce(const ddp_buffer& buffer, std::int32_t op);
Operation make_broadcast(const ddp_buffer& buffer, std::int32_t root, int group_size);
Operation make_all_gather(const ddp_buffer& input, const ddp_buffer& output, int group_size);
void check_buffer(const char* what, const void* data, std::size_t count, std::int32_t dtype, ddp_device device);

std::size_t dtype_size(std::int32_t dtype);  // 0: unknown
const char* dtype_name(std::int32_t dtype);
const char* operation_name(OperationKind kind);

std::string human_bytes(std::size_t bytes);                                // "33.0 MB"
std::string describe(const Operation& operation, std::uint64_t sequence);  // "all_reduce #412 (33.0 MB)"

// What must be equal on all ranks, in a form they can exchange.
using Fingerprint = std::array<std::int64_t, 2>;
Fingerprint fingerprint(const Operation& operation);
std::string describe(const Fingerprint& fingerprint);  // "all_reduce of 1000 float32 (sum)"
// One fingerprint a rank: "rank 0 called all_reduce of 1000 float32 (sum); ranks 1, 2 called barrier".
std::string who_called_what(const std::vector<Fingerprint>& fingerprints);

// Multiplies by 1/size: DDP_AVG is this, then a sum. Multiplying, not dividing, gives PyTorch's bits.
void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, int size);

}  // namespace ddp::runtime
