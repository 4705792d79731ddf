// SPDX-License-Identifier: BSD-3-Clause
// Small messages between ranks in CPU memory: options, shapes, which parameters were used. Works
// also in a group whose only backend is for GPU memory: there each message takes a detour through a
// piece of GPU memory, on a separate stream, so that it never waits for the caller's kernels. All
// operations are collective and return when the result is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/group/process_group.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {

class HostExchange {
 public:
  explicit HostExchange(ProcessGroup& group);
  HostExchange(HostExchange&&) = default;

  int ranks() const { return group_.size(); }
  void broadcast(void* data, std::size_t size, int root);
  // all receives `size` bytes from each rank, in the order of ranks.
  void all_gather(const void* mine, std::size_t size, void* all);
  // Replaces each byte by its smallest or largest value over all ranks.
  void all_reduce(std::uint8_t* data, std::size_t size, ddp_reduce_op op);

 private:
  struct Detour {  // memory and stream on the GPU
    explicit Detour(std::shared_ptr<collectives::CudaDevice> gpu) : place(std::move(gpu)), stream(place.gpu()) {}
    TensorPlace place;
    collectives::SideStream stream;
    TensorMemory memory;
  };
  // Copies `sent` bytes from `data` to the GPU, runs operation(there) on them, then copies
  // `received` bytes of the result to `result`, starting `at` bytes after `there`.
  void take_detour(const void* data, std::size_t sent, void* result, std::size_t at, std::size_t received,
                   const std::function<Operation(std::byte* there)>& operation);
  ddp_buffer bytes(void* data, std::size_t size) const;

  ProcessGroup& group_;
  std::unique_ptr<Detour> detour_;  // null: the group reaches CPU memory directly
};

}  // namespace ddp::runtime
