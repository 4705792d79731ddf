// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What ZeroRedundancyOptimizer sends between GPUs: the new values of each rank's part of the parameters.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/cuda/memory.hpp"
#include "ddp/cuda/parameters.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/optimizer.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/work.hpp"

namespace ddp::cuda::detail {

// Collects the parts of a row of parameters from the ranks that have them, chunk by chunk, in the order of the current
// stream: while one chunk is on its way, the next one is packed into the other slot.
class ShardExchange {
 public:
  using Row = ddp::detail::ParameterRow;

  // Size of one all_gather: large enough to be fast, small compared with any model.
  static constexpr std::size_t kGatheredBytes = 32 << 20;

  // Each rank's part of the row, which must outlive this object, has `share` bytes. The host waits.
  ShardExchange(ProcessGroup group, int device, const Row& row, std::size_t share,
                std::size_t gathered_bytes = kGatheredBytes)
      : group_(group),
        gpu_{DeviceKind::Cuda, device},
        row_(row),
        ranks_(static_cast<std::size_t>(group.size())),
        share_(share),
        chunk_(std::min(share, Row::aligned(gathered_bytes / ranks_))) {
    for (Slot& slot : slots_) {
      slot.sent = Memory(device, chunk_);
      slot.received = Memory(device, chunk_ * ranks_);
    }
  }

  // Gives every rank the values that the others have in their parts. The host waits only if values have moved.
  void run(const std::vector<Parameter>& parameters) {
    prepare(parameters);
    std::size_t next = 0;
    for (Chunk& chunk : chunks_) {
      Slot& slot = slots_[next];
      next ^= 1U;
      unpack(slot);
      ddp::detail::check(ddp_cuda_convert(chunk.pack.get()));
      slot.work = group_.all_gather_async(bytes(slot.sent.data(), chunk.bytes),
                                          bytes(slot.received.data(), chunk.bytes * ranks_));
      slot.chunk = &chunk;
    }
    unpack(slots_[next]);  // the older one first
    unpack(slots_[next ^ 1U]);
  }

  // Returns on root what all ranks have at `part`, each `share` bytes. Collective. The host waits.
  std::vector<std::byte> gather(std::byte* part, int root) {
    const bool here = group_.rank() == root;
    std::vector<std::byte> whole(here ? share_ * ranks_ : 0);
    for (std::size_t at = 0; at < share_; at += chunk_) {
      const std::size_t size = std::min(chunk_, share_ - at);
      const Memory& received = slots_[0].received;
      group_.gather(bytes(part + at, size), bytes(received.data(), here ? size * ranks_ : 0), root);
      for (std::size_t r = 0; here && r < ranks_; ++r) received.read(r * size, whole.data() + r * share_ + at, size);
    }
    return whole;
  }

 private:
  using Pairs = std::unique_ptr<ddp_cuda_pairs, PairsDeleter>;
  struct Chunk {
    std::size_t bytes;
    Pairs pack;    // from this rank's parameters
    Pairs unpack;  // to those of the other ranks
  };
  struct Slot {
    Memory sent;
    Memory received;
    Work work = {};
    const Chunk* chunk = nullptr;  // what is on its way; null: nothing
  };
  // Pairs of arrays, from which a list is made.
  struct Copies {
    std::vector<ddp_buffer> from;
    std::vector<ddp_buffer> to;
    Pairs make(int device) const {
      ddp_cuda_pairs* made = nullptr;
      ddp::detail::check(ddp_cuda_pairs_create(device, from.data(), to.data(), from.size(), &made));
      return Pairs(made);
    }
  };

  Buffer bytes(void* data, std::size_t count) const { return Buffer(data, count, DType::UInt8, gpu_); }

  // Makes the current stream wait for what is on its way to the slot, and copies it into the parameters.
  static void unpack(Slot& slot) {
    if (slot.chunk == nullptr) return;
    const Chunk& chunk = *std::exchange(slot.chunk, nullptr);
    slot.work.wait();
    ddp::detail::check(ddp_cuda_convert(chunk.unpack.get()));
  }

  // Makes the lists of what is copied, for the places where the values are now.
  void prepare(const std::vector<Parameter>& parameters) {
    std::vector<void*> values;
    for (const Parameter& p : parameters) values.push_back(p.value);
    if (!chunks_.empty() && values == values_) return;
    std::vector<Chunk> chunks;
    for (std::size_t at = 0; at < share_; at += chunk_) {
      chunks.push_back(chunk_at(parameters, at, slots_[chunks.size() % 2]));
    }
    chunks_ = std::move(chunks);
    values_ = std::move(values);
  }

  Chunk chunk_at(const std::vector<Parameter>& parameters, std::size_t at, const Slot& slot) const {
    const std::size_t size = std::min(chunk_, share_ - at);
    Copies pack, unpack;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const bool is_here = static_cast<int>(r) == group_.rank();
      const std::size_t begin = share_ * r + at;
      std::byte* packed = static_cast<std::byte*>(is_here ? slot.sent.data() : slot.received.data());
      if (!is_here) packed += r * size;
      row_.for_each_piece(begin, begin + size, [&](const Row::Piece& piece) {
        const Parameter& p = parameters[piece.parameter];
        const Buffer value(ddp::detail::element_at(p.value, piece.first, p.dtype), piece.count, p.dtype, gpu_);
        const Buffer copy(packed + (piece.offset - begin), piece.count, p.dtype, gpu_);
        Copies& copies = is_here ? pack : unpack;
        copies.from.push_back((is_here ? value : copy).c());
        copies.to.push_back((is_here ? copy : value).c());
      });
    }
    return {size, pack.make(gpu_.index), unpack.make(gpu_.index)};
  }

  ProcessGroup group_;
  Device gpu_;
  const Row& row_;
  std::size_t ranks_;
  std::size_t share_;
  std::size_t chunk_;  // bytes of each rank's part in one all_gather
  std::array<Slot, 2> slots_;
  std::vector<Chunk> chunks_;
  std::vector<void*> values_;  // where the parameters were when the chunks were made
};

}  // namespace ddp::cuda::detail
