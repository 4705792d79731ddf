// SPDX-License-Identifier: BSD-3-Clause
// A list of tensors in the memory of one GPU, cut into chunks for the blocks of a kernel. The list itself is in device
// memory too, so that a launch costs the same however many tensors there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/training/cuda/kernels.hpp"

namespace ddp::runtime {

class TensorList {
 public:
  // Copies the list to the device; the host waits for that.
  TensorList(const std::shared_ptr<const Kernels>& kernels, const std::vector<kernels::TensorEntry>& tensors);

  const kernels::Table& table() const { return table_; }
  // Returns the number of blocks for one launch; 0 if there is no element.
  unsigned blocks() const;

 private:
  std::unique_ptr<collectives::DeviceMemory> tensors_;
  std::unique_ptr<collectives::DeviceMemory> chunks_;
  kernels::Table table_ = {};
};

// Returns the entry of one tensor. Throws rendezvous::Error{InvalidArgument}, which begins with `what`, for null memory
// and for types that are not of floating point.
kernels::TensorEntry entry_of(const std::string& what, const ddp_cuda_tensor& tensor);
// Returns the entry of a pair. Throws also for buffers that are not on the device, differ in size, or have types
// without a conversion.
kernels::TensorEntry pair_of(const std::string& what, int device, const ddp_buffer& from, const ddp_buffer& to);

}  // namespace ddp::runtime
