// SPDX-License-Identifier: BSD-3-Clause
// The memory in which gradients travel together, and how they get in and out: one pass each, which on the CPU scales on
// the way in. On a GPU gradients get in and out on this thread's current stream, whichever that is each time, and in
// the order of the calls.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/collective/buffer.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {

class Bucket {
 public:
  // slices: without their offsets, which follow from the counts. What their shapes point to stays.
  Bucket(const TensorPlace& place, std::int32_t dtype, std::vector<ddp_grad_slice> slices);
  Bucket(Bucket&&) noexcept = default;
  Bucket& operator=(Bucket&&) noexcept = default;
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  std::int32_t dtype() const { return dtype_; }
  void* at(std::size_t slice) { return memory_.data() + slices_[slice].offset * dtype_size(dtype_); }
  // from may be where it goes. A factor that is not 1: float32 and float64 on the CPU only.
  void put(std::size_t slice, const void* from, double factor);
  void put_zeros(std::size_t slice);
  void take(std::size_t slice, void* to);

  // What comes on the current stream from now on has all that was put.
  void follow() { order_.enter(); }

  ddp_buffer buffer() { return {memory_.data(), count_, dtype_, place_.device()}; }
  // As a hook sees it.
  ddp_grad_bucket view(std::size_t index, bool is_last) {
    return {index, is_last ? 1 : 0, buffer(), slices_.data(), slices_.size()};
  }

 private:
  std::size_t bytes(std::size_t slice) const { return slices_[slice].count * dtype_size(dtype_); }

  TensorPlace place_;
  std::int32_t dtype_;
  std::vector<ddp_grad_slice> slices_;
  std::size_t count_ = 0;
  TensorMemory memory_;
  StreamOrder order_;
};

}  // namespace ddp::runtime
