// SPDX-License-Identifier: BSD-3-Clause
// The memory that ddprun keeps for a worker while its processes come and go, as a memfd of a fixed size:
//
//     header     one page: what is kept, and the marks of a step
//     records    four of header.record_bytes each, aligned to 64 bytes: begun of even and of odd steps, then done
//     shadow     with --keep-memory=shadow: one of header.shadow_parts parts of the tensors, aligned to a page
//     own        header.own_bytes, aligned to a page: tensors that no other rank has, such as a shard
//     tensors    header.tensor_bytes, right after: parameters and the optimizer's state, equal on all ranks
//     own shadow with --keep-memory=shadow: a copy of `own`, aligned to a page
//
// The shadow's part is at the same place in the memory of all ranks, however many bytes each has of its own.
//
// A worker that does step s, the s-th update since the memory was made, writes
//
//     shadow = s-1   once its part of the tensors is in the shadow, and all of its own ones
//     begun = s      before the update writes to the tensors; first the record `begun` of s, and the shadow
//     updated = s    after the last write
//     done = s       where the next step starts; first the record `done` of s
//
// so that whatever kills it, the marks say what the tensors are. A mark is one 8-byte store. Records of neighbouring
// steps are in different places: the older one is whole while the newer one is written.
//
// The agent maps the header alone, for reading, and believes none of its numbers more than a worker's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::rendezvous {

inline constexpr std::uint64_t kKeptVersion = 0x6464706b65700005;  // "ddpkep", and the number of the layout
inline constexpr std::size_t kKeptPage = 4096;
inline constexpr std::int64_t kNoStep = -1;

// A number in shared memory that its worker writes and others read.
using KeptMark = std::atomic<std::int64_t>;
static_assert(KeptMark::is_always_lock_free);

struct alignas(kKeptPage) KeptHeader {
  std::uint64_t version;  // written last, once the rest is there
  std::uint64_t layout;   // names, types and sizes of the tensors as a number; equal where the tensors are
  std::uint64_t tensor_bytes, record_bytes;
  std::int64_t rank, world_size;
  KeptMark begun, updated, done;  // kNoStep: none yet; of `updated` also: the tensors are being replaced
  std::array<KeptMark, 2> begun_records, done_records;  // the step of the record in each place; kNoStep: none
  std::int64_t shadow_part, shadow_parts;               // number of this worker's part, from 0; no parts: no shadow
  KeptMark shadow;                                      // the step after which the part was copied; kNoStep: none
  std::uint64_t own_layout, own_bytes;                  // what only this rank has
  std::int64_t is_sharded;                              // 1: a rank of the job has tensors of its own
};
static_assert(sizeof(KeptHeader) == kKeptPage);

// The bytes of the tensors that one part of the shadow has; none if there are fewer parts than `part` says.
struct KeptPart {
  std::size_t begin = 0, bytes = 0;

  // Returns the size of the largest part: whole lines.
  static constexpr std::size_t most(std::size_t tensor_bytes, std::size_t parts) {
    return parts == 0 ? 0 : ((tensor_bytes + parts - 1) / parts + 63) / 64 * 64;
  }
  constexpr KeptPart(std::size_t tensor_bytes, std::size_t part, std::size_t parts)
      : begin(std::min(part * most(tensor_bytes, parts), tensor_bytes)),
        bytes(part < parts ? std::min(most(tensor_bytes, parts), tensor_bytes - begin) : 0) {}
};

// Where the parts of the memory are.
struct KeptPlaces {
  std::size_t record_bytes = 0, shadow = 0, own = 0, tensors = 0, own_shadow = 0, all = 0;

  static constexpr std::size_t aligned(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
  constexpr KeptPlaces(std::size_t tensor_bytes, std::size_t record, std::size_t shadow_parts = 0,
                       std::size_t own_bytes = 0)
      : record_bytes(aligned(record, 64)),
        shadow(aligned(kKeptPage + 4 * record_bytes, kKeptPage)),
        own(aligned(shadow + KeptPart::most(tensor_bytes, shadow_parts), kKeptPage)),
        tensors(own + own_bytes),
        own_shadow(aligned(tensors + tensor_bytes, kKeptPage)),
        all(aligned(own_shadow + (shadow_parts > 0 ? own_bytes : 0), kKeptPage)) {}
  constexpr std::size_t begun_record(std::int64_t step) const { return kKeptPage + slot(step) * record_bytes; }
  constexpr std::size_t done_record(std::int64_t step) const { return kKeptPage + (2 + slot(step)) * record_bytes; }
  static constexpr std::size_t slot(std::int64_t step) { return static_cast<std::size_t>(step & 1); }
};

}  // namespace ddp::rendezvous
