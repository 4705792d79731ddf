// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Memory of a GPU that an object of libddp owns.
#pragma once

#include <cstddef>
#include <memory>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp::cuda {

/// Bytes in the memory of a GPU, all zeros at first. Empty if it was made without a size. Its functions make the host
/// wait; they use this thread's current stream.
class Memory {
 public:
  Memory() = default;  ///< owns nothing
  /// Allocates bytes on a GPU. Throws Error with Status::System if there are not as many.
  Memory(int device, std::size_t bytes) {
    if (bytes == 0) return;
    ddp_cuda_memory* made = nullptr;
    ddp::detail::check(ddp_cuda_memory_create(device, bytes, &made, &data_));
    memory_.reset(made);
  }

  /// Returns the address on the GPU; null if it is empty.
  void* data() const { return data_; }
  /// Copies bytes from an offset to the host.
  void read(std::size_t offset, void* to, std::size_t bytes) const {
    if (bytes > 0) ddp::detail::check(ddp_cuda_memory_read(memory_.get(), offset, to, bytes));
  }
  /// Copies bytes from the host to an offset.
  void write(std::size_t offset, const void* from, std::size_t bytes) {
    if (bytes > 0) ddp::detail::check(ddp_cuda_memory_write(memory_.get(), offset, from, bytes));
  }

 private:
  struct Deleter {
    void operator()(ddp_cuda_memory* memory) const { ddp_cuda_memory_destroy(memory); }
  };
  std::unique_ptr<ddp_cuda_memory, Deleter> memory_;
  void* data_ = nullptr;
};

}  // namespace ddp::cuda
