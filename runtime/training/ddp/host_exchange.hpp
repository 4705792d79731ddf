// SPDX-License-Identifier: BSD-3-Clause
// What ranks tell each other of a model, in the memory of the CPU, also in a group that has a backend for a GPU's
// memory only: then through a piece of that, on a stream of its own, so that it waits for none of the caller's kernels.
// Collective; returns when the result is there.
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
  // all: of `size` bytes from each rank.
  void all_gather(const void* mine, std::size_t size, void* all);
  // Of each byte the smallest or largest.
  void all_reduce(std::uint8_t* data, std::size_t size, ddp_reduce_op op);

 private:
  struct Detour {  // through the GPU
    explicit Detour(std::shared_ptr<collectives::CudaDevice> gpu) : place(std::move(gpu)), stream(place.gpu()) {}
    TensorPlace place;
    collectives::SideStream stream;
    TensorMemory memory;
  };
  // operation(there): what to run on the GPU's memory, where `sent` bytes from `data` are; `received` bytes of the
  // result, `at` bytes further on, go to `result`.
  void take_detour(const void* data, std::size_t sent, void* result, std::size_t at, std::size_t received,
                   const std::function<Operation(std::byte* there)>& operation);
  ddp_buffer bytes(void* data, std::size_t size) const;

  ProcessGroup& group_;
  std::unique_ptr<Detour> detour_;  // null: the group reaches the memory of the CPU
};

}  // namespace ddp::runtime
