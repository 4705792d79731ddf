// SPDX-License-Identifier: BSD-3-Clause
// One bucket: the memory in which several gradients travel in one message. Copies gradients in and
// out in one pass each; on the CPU the pass that copies in also scales. On a GPU the copies run in
// the order of the calls, each on the calling thread's stream that is current at the time of the
// call.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/base/buffer.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {

class Bucket {
 public:
  // slices are given without offsets, which the constructor computes from the counts. The shapes
  // they point to must outlive the bucket. `memory` is at that place and has room for all of them.
  Bucket(const TensorPlace& place, std::int32_t dtype, std::vector<ddp_grad_slice> slices, TensorMemory memory);
  Bucket(Bucket&&) noexcept = default;
  Bucket& operator=(Bucket&&) noexcept = default;
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  std::int32_t dtype() const { return dtype_; }
  void* at(std::size_t slice) { return memory_.data() + slices_[slice].offset * dtype_size(dtype_); }
  // Copies gradient `slice` in from `from`, which may be its own place in the bucket. A factor
  // other than 1 works only for float32 and float64 on the CPU.
  void put(std::size_t slice, const void* from, double factor);
  void put_zeros(std::size_t slice);
  void take(std::size_t slice, void* to);
  // Sets where the parameter of that gradient is, for communication hooks.
  void set_value(std::size_t slice, void* value) { slices_[slice].value = value; }

  // Makes later work on the current stream wait for everything that was put in so far.
  void follow() { order_.enter(); }

  ddp_buffer buffer() { return {memory_.data(), count_, dtype_, place_.device()}; }
  // Returns the bucket in the form that communication hooks receive.
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
